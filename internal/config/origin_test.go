package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestErrorsNameFiles checks that the error for a wrong value begins with the file and the line that set the value. The error for a flag
// names no file.
func TestErrorsNameFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const kube = "apiVersion: " + kubeletAPIVersion + "\nkind: " + kubeletKind + "\n"
	const edge = "apiVersion: " + EdgeAPIVersion + "\nkind: " + EdgeKind + "\n"
	good := write("good.yaml", kube)
	bad := write("bad.yaml", kube+"serializeImagePulls: false\nmaxPods: -1\n")
	drop := write("drop/1.conf", kube+"\nmaxPods: -2\n")
	edgeFile := write("edge.yaml", edge+"shimPods: -3\n")
	sent := func(Dirs) (*SentConfiguration, error) {
		return &SentConfiguration{Name: "ConfigMap x", Kubelet: []byte(kube), Edge: []byte(edge + "shimPods: -4\n"), Binding: Binding}, nil
	}
	for name, tt := range map[string]struct {
		args []string
		sent func(Dirs) (*SentConfiguration, error)
		want string
	}{
		"a file":               {[]string{"--config=" + bad}, nil, bad + ":4: maxPods: "},
		"the last file":        {[]string{"--config=" + bad, "--config-dir=" + filepath.Dir(drop)}, nil, drop + ":4: maxPods: "},
		"a flag":               {[]string{"--config=" + bad, "--max-pods=-5"}, nil, "maxPods: Invalid value: -5"},
		"an EdgeConfiguration": {[]string{"--config=" + good, "--edge-config=" + edgeFile}, nil, edgeFile + ":3: EdgeConfiguration.shimPods: "},
		"a sent one":           {[]string{"--config=" + good, "--edge-config=" + edgeFile}, sent, "ConfigMap x EdgeConfiguration:3: EdgeConfiguration.shimPods: Invalid value: -4"},
	} {
		_, _, err := LoadWith(append(tt.args, "--hostname-override=n", "--state-dir="+dir), tt.sent)
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", name, err, tt.want)
		}
	}
}

// TestManyMistakes checks that a sent configuration with many wrong values gets a limited number of errors.
func TestManyMistakes(t *testing.T) {
	var b strings.Builder
	b.WriteString("apiVersion: " + kubeletAPIVersion + "\nkind: " + kubeletKind + "\nregisterWithTaints:\n")
	for range 1_000 {
		b.WriteString("- {key: '', effect: x}\n")
	}
	_, _, err := LoadWith([]string{"--hostname-override=n", "--state-dir=" + t.TempDir()}, func(Dirs) (*SentConfiguration, error) {
		return &SentConfiguration{Name: "ConfigMap x", Kubelet: []byte(b.String()), Consent: []string{"registerWithTaints"}, Binding: Binding}, nil
	})
	if err == nil || strings.Count(err.Error(), "\n") != maxMistakes || !strings.Contains(err.Error(), " more mistakes") {
		t.Errorf("%.300v", err)
	}
}
