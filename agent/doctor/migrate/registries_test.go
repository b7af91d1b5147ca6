package migrate

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/remotes/docker/config"
)

// hostsOf returns the servers that containerd asks for the images of a registry, in order, with the translated files: the root of the API,
// and + for a private CA, ! for a certificate that is not verified.
func hostsOf(t *testing.T, r *Report, name string) string {
	t.Helper()
	dir := t.TempDir()
	if err := r.WriteFiles(dir); err != nil {
		t.Fatal(err)
	}
	root := config.HostDirFromRoot(filepath.Join(dir, "certs.d"))
	hosts, err := config.ConfigureHosts(t.Context(), config.HostOptions{HostDir: root})(name)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, h := range hosts {
		text := fmt.Sprintf("%s://%s%s", h.Scheme, h.Host, h.Path)
		if transport, ok := h.Client.Transport.(*http.Transport); ok && transport.TLSClientConfig.RootCAs != nil {
			text += "+"
		} else if ok && transport.TLSClientConfig.InsecureSkipVerify {
			text += "!"
		}
		list = append(list, text)
	}
	return strings.Join(list, " ")
}

// TestRegistryHosts checks that islet asks the same servers as k3s or containerd, at the same paths and with the same TLS settings.
func TestRegistryHosts(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca.crt")
	writeCA(t, ca)
	private, anyCA := "{tls: {ca_file: "+ca+"}}", "{tls: {insecure_skip_verify: true}}"
	const hub = "https://registry-1.docker.io/v2"
	for i, c := range []struct {
		mirrors, configs string // of registries.yaml, in which * is k3s' only; a mirror of containerd has the same endpoints
		name, want       string
		noDefault        bool // of k3s
	}{
		{mirrors: "docker.io: {endpoint: ['https://mirror.example']}", name: "docker.io", want: "https://mirror.example/v2 " + hub},
		{mirrors: "docker.io: {endpoint: ['https://mirror.example/v2/']}", name: "docker.io", want: "https://mirror.example/v2 " + hub},
		{mirrors: "docker.io: {endpoint: ['https://harbor.example/v2/hub-proxy']}", name: "docker.io",
			want: "https://harbor.example/v2/hub-proxy " + hub},
		{mirrors: "docker.io: {endpoint: ['https://nexus.example/repository/hub/v2']}", name: "docker.io",
			want: "https://nexus.example/repository/hub/v2 " + hub},
		{mirrors: "docker.io: {endpoint: ['https://a.example/v2/hub', 'https://b.example/v2/hub']}", configs: "b.example: " + private,
			name: "docker.io", noDefault: true, want: "https://a.example/v2/hub https://b.example/v2/hub+"},
		{mirrors: "quay.io: {endpoint: ['https://mirror.example']}", configs: "quay.io: " + private, name: "quay.io",
			want: "https://mirror.example/v2 https://quay.io/v2+"},
		{mirrors: "quay.io: {endpoint: ['https://mirror.example']}", configs: "mirror.example: " + private, name: "mirror.example",
			want: "https://mirror.example/v2+"},
		{mirrors: "docker.io: {endpoint: ['https://mirror.example']}", configs: "registry-1.docker.io: " + anyCA, name: "docker.io",
			want: "https://mirror.example/v2 " + hub + "!"},
		{mirrors: "own.example: {endpoint: ['https://own.example', 'https://mirror.example']}", configs: "own.example: " + private,
			name: "own.example", want: "https://own.example/v2+ https://mirror.example/v2 https://own.example/v2+"},
		{mirrors: "own.example: {endpoint: ['https://mirror.example', 'https://own.example']}", configs: "own.example: " + private,
			name: "own.example", want: "https://mirror.example/v2 https://own.example/v2+"},
		{configs: "own.example:5000: " + private, name: "own.example:5000", want: "https://own.example:5000/v2+"},
		{mirrors: "docker.io: {endpoint: ['localhost:5000', '127.0.0.1:443', 'mirror.example:5000']}", name: "docker.io",
			want: "http://localhost:5000/v2 https://127.0.0.1:443/v2 https://mirror.example:5000/v2 " + hub},
		{mirrors: "'*': {endpoint: ['https://mirror.example/v2/all']}", name: "ghcr.io",
			want: "https://mirror.example/v2/all https://ghcr.io/v2"},
		{mirrors: "'*': {endpoint: ['https://mirror.example/v2/all']}", name: "ghcr.io", noDefault: true, want: "https://mirror.example/v2/all"},
	} {
		root := t.TempDir()
		put(t, root, "etc/systemd/system/k3s-agent.service", "[Service]\nExecStart=/usr/local/bin/k3s agent")
		put(t, root, "etc/rancher/k3s/config.yaml", fmt.Sprintf("disable-default-registry-endpoint: %v", c.noDefault))
		put(t, root, "etc/rancher/k3s/registries.yaml", "mirrors: {"+c.mirrors+"}\nconfigs: {"+c.configs+"}")
		if got := hostsOf(t, Find(NewTree(root), nil), c.name); got != c.want {
			t.Errorf("%d: %s, want %s", i, got, c.want)
		}
		if c.noDefault || strings.Contains(c.mirrors, "localhost") {
			continue // containerd has no such setting, and needs a scheme
		}
		toml := "version = 2\n"
		table := func(kind, text string) {
			if text == "" {
				return
			}
			name, value, _ := strings.Cut(strings.TrimSuffix(text, "}"), ": {")
			value = strings.NewReplacer("endpoint: ", "endpoint = ", "tls: {", "tls = {", "ca_file: "+ca, "ca_file = '"+ca+"'",
				"insecure_skip_verify: ", "insecure_skip_verify = ").Replace(value)
			toml += fmt.Sprintf("[plugins.\"io.containerd.grpc.v1.cri\".registry.%s.%q]\n%s\n", kind, strings.Trim(name, "'"), value)
		}
		table("mirrors", c.mirrors)
		table("configs", c.configs)
		tree := recorded(t, "kubeadm")
		if err := os.WriteFile(filepath.Join(tree.root, "etc/containerd/config.toml"), []byte(toml), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := hostsOf(t, Find(tree, nil), c.name); got != c.want {
			t.Errorf("%d, containerd: %s, want %s\n%s", i, got, c.want, toml)
		}
	}
}

// writeCA writes a CA.
func writeCA(t *testing.T, file string) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(nil, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
