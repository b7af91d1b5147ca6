package credentials

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const good = `
kind: CredentialProviderConfig
apiVersion: kubelet.config.k8s.io/v1
providers:
- name: acme
  matchImages: ["*.acme.example:5000/team", "registry.example"]
  defaultCacheDuration: 12h
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  args: [get]
  env:
  - {name: HOME, value: /tmp}
  tokenAttributes:
    serviceAccountTokenAudience: acme
    cacheType: ServiceAccount
    requireServiceAccount: true
    requiredServiceAccountAnnotationKeys: [acme.example/Role]
    optionalServiceAccountAnnotationKeys: [acme.example/hint]
`

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestLoad checks that a configuration is rejected if a kubelet would reject it. The error names the field.
func TestLoad(t *testing.T) {
	for _, tt := range []struct{ from, to, want string }{
		{"", "", ""},
		{"kubelet.config.k8s.io/v1\n", "kubelet.config.k8s.io/v1beta1\n", "tokenAttributes: unknown field"},
		{"kubelet.config.k8s.io/v1\n", "kubelet.config.k8s.io/v2\n", "kind and apiVersion must be"},
		{"CredentialProviderConfig", "KubeletConfiguration", "kind and apiVersion must be"},
		{"  args:", "  arg:", `unknown field "providers[0].arg"`},
		{"  args:", "  name: twice\n  args:", "already set"},
		{"name: acme", "name: a/b", "providers[0].name"},
		{"name: acme", "name: a b", "providers[0].name"},
		{"name: acme", "name: ..", "providers[0].name"},
		{"name: acme", "name: ''", "providers[0].name"},
		{"  defaultCacheDuration: 12h\n", "", "providers[0].defaultCacheDuration: it is required"},
		{"12h", "-1s", "providers[0].defaultCacheDuration"},
		{"12h", "soon", "invalid duration"},
		{"credentialprovider.kubelet.k8s.io/v1", "credentialprovider.kubelet.k8s.io/v1beta1", "providers[0].tokenAttributes: tokens need"},
		{"credentialprovider.kubelet.k8s.io/v1", "acme/v1", "providers[0].apiVersion"},
		{`["*.acme.example:5000/team", "registry.example"]`, "[]", "providers[0].matchImages: at least one"},
		{"registry.example", "%zz", "providers[0].matchImages"},
		{"serviceAccountTokenAudience: acme", "serviceAccountTokenAudience: ''", "tokenAttributes.serviceAccountTokenAudience: it is required"},
		{"cacheType: ServiceAccount", "cacheType: Pod", "tokenAttributes.cacheType"},
		{"    cacheType: ServiceAccount\n", "", "tokenAttributes.cacheType"},
		{"    requireServiceAccount: true\n", "", "tokenAttributes.requireServiceAccount: it is required"},
		{"requireServiceAccount: true", "requireServiceAccount: false", "they need requireServiceAccount"},
		{"[acme.example/hint]", "[acme.example/Role]", `"acme.example/Role" is a duplicate`},
		{"[acme.example/hint]", "['no key']", "is not a valid annotation key"},
	} {
		if tt.from != "" && !strings.Contains(good, tt.from) {
			t.Fatal(tt.from)
		}
		_, hash, err := loadConfig(write(t, t.TempDir(), "c.yaml", strings.Replace(good, tt.from, tt.to, 1)))
		if tt.want == "" && (err != nil || !strings.HasPrefix(hash, "sha256:")) || tt.want != "" &&
			(err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%q for %q: %v", tt.to, tt.from, err)
		}
	}
}

// TestLoadDirectory checks that the plugins of a directory are ordered by the names of their configuration files.
func TestLoadDirectory(t *testing.T) {
	dir := t.TempDir()
	if _, _, err := loadConfig(dir); err == nil {
		t.Error("an empty directory")
	}
	one := func(name, version string) string {
		return fmt.Sprintf("kind: CredentialProviderConfig\napiVersion: kubelet.config.k8s.io/%s\nproviders:\n- {name: %s, matchImages: [a.example], defaultCacheDuration: 1s, apiVersion: credentialprovider.kubelet.k8s.io/%[1]s}\n", version, name)
	}
	write(t, dir, "2.yml", one("second", "v1beta1"))
	write(t, dir, "3.json",
		`{"kind":"CredentialProviderConfig","apiVersion":"kubelet.config.k8s.io/v1alpha1","providers":[{"name":"third","matchImages":["a.example"],"defaultCacheDuration":"0s","apiVersion":"credentialprovider.kubelet.k8s.io/v1alpha1"}]}`)
	write(t, dir, "1.yaml", one("first", "v1"))
	write(t, dir, "README", "not a configuration")
	got, _, err := loadConfig(dir)
	var names []string
	for _, p := range got {
		names = append(names, p.Name)
	}
	if fmt.Sprint(names) != "[first second third]" || err != nil {
		t.Error(names, err)
	}
	write(t, dir, "4.yaml", one("second", "v1"))
	if _, _, err := loadConfig(dir); err == nil || !strings.Contains(err.Error(), `"second" is a duplicate`) {
		t.Error(err)
	}
	write(t, dir, "4.yaml", strings.Repeat("#", configLimit+1))
	if _, _, err := loadConfig(dir); err == nil || !strings.Contains(err.Error(), "larger") {
		t.Error(err)
	}
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(`{"kind":"CredentialProviderConfig","apiVersion":"kubelet.config.k8s.io/v1","providers":[{"tokenAttributes":{}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if all, err := decodeConfig(data); err == nil {
			if len(checkProviders(all)) == 0 && len(all) == 0 {
				t.Error("no providers")
			}
		}
	})
}
