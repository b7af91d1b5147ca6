package join_test

import (
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/agent/cli"
	"github.com/islet-edge/islet/agent/cli/clitest"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/k3s"
	"github.com/islet-edge/islet/internal/k3s/k3stest"
)

var run = clitest.Run(cli.Main)

// A host is a machine that joins.
type host struct {
	*k3stest.Server
	t   *testing.T
	dir string
}

func newHost(t *testing.T) *host {
	h := &host{k3stest.Start(t), t, t.TempDir()}
	h.write("token", h.Token()+"\n")
	return h
}

func (h *host) write(name, content string) {
	h.t.Helper()
	path := filepath.Join(h.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o640); err != nil {
		h.t.Fatal(err)
	}
}

// This function runs the command with the directories of the host.
func (h *host) join(args ...string) clitest.Result {
	h.t.Helper()
	return run(h.t, nil, h.Token(), append([]string{"join", "--k3s", h.URL, "--token-file", filepath.Join(h.dir, "token"), "--node-name", "Pi",
		"--state-dir", filepath.Join(h.dir, "state"), "--config-dir", filepath.Join(h.dir, "etc"),
		"--password-file", filepath.Join(h.dir, "rancher", "password")}, args...)...)
}

// This function returns the content of all files, by their names. A link is shown by its target.
func (h *host) files() map[string]string {
	h.t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(h.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if e.Type() == fs.ModeSymlink {
			all[path], err = os.Readlink(path)
			return err
		}
		text, err := os.ReadFile(path)
		all[path] = string(text)
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return all
}

// This function loads the configuration that an agent of the host has.
func (h *host) load() *config.Config {
	h.t.Helper()
	c, _, err := config.Load([]string{"--config=" + filepath.Join(h.dir, "etc/kubelet.yaml"), "--edge-config=" + filepath.Join(h.dir, "etc/edge.yaml")})
	if err != nil {
		h.t.Fatal(err)
	}
	return c
}

// TestJoin checks what the agent gets, that other settings and comments stay, and that a repetition changes only the certificates.
func TestJoin(t *testing.T) {
	h := newHost(t)
	h.write("etc/kubelet.yaml", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n# ours\nmaxPods: 30\nclusterDNS:\n- 10.0.0.1\n"+
		"authentication:\n  x509: {}\n  anonymous:\n    enabled: false # never\n# end\nrotateCertificates: true\n")
	got := h.join()
	if got.Code != 0 || got.Err != "" {
		t.Fatalf("%+v", got)
	}
	c := h.load()
	d := k3s.Directory(c.Edge.K3s.Directory)
	serving := d.PairFile(k3s.ForServing)
	if c.Kubeconfig != d.Kubeconfig() || c.Kubelet.TLSCertFile != serving || c.Kubelet.TLSPrivateKeyFile != serving ||
		c.Kubelet.MaxPods != 30 ||
		c.Kubelet.Authentication.X509.ClientCAFile != d.ClientCA() || strings.Join(c.Kubelet.ClusterDNS, " ") != "10.43.0.10" ||
		c.Kubelet.ClusterDomain != "cluster.local" || c.Kubelet.RotateCertificates || *c.Kubelet.Authentication.Anonymous.Enabled {
		t.Errorf("%+v", c.Kubelet)
	}
	before := h.files()
	for _, want := range []string{"# ours\n", "# end\n"} {
		if !strings.Contains(before[filepath.Join(h.dir, "etc/kubelet.yaml")], want) {
			t.Errorf("the file has lost %q", want)
		}
	}
	if info, err := os.Stat(filepath.Join(h.dir, "etc/kubelet.yaml")); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", info, err)
	}
	if token, err := d.Token(); token != (k3s.Token{}) || err != nil {
		t.Errorf("the token was kept: %v", err)
	}
	r, err := d.Record()
	if err != nil || r.Node != "pi" || r.Server != h.URL {
		t.Errorf("%+v, %v", r, err)
	}
	got = h.join("--keep-token", "--token-file", "-", "--node-ip", "192.0.2.7,fd00::7")
	if got.Code != 0 || strings.Contains(got.Out, "kubelet.yaml") || !strings.Contains(got.Out, "--node-ip=192.0.2.7,fd00::7") {
		t.Fatalf("%+v", got)
	}
	for name, content := range h.files() {
		if strings.Contains(name, "/etc/") && before[name] != content || strings.HasSuffix(name, "password") && before[name] != content {
			t.Errorf("%s has changed", name)
		}
	}
	if token, err := d.Token(); token.Password != k3stest.Secret || err != nil {
		t.Errorf("the token was not kept: %v", err)
	}
	if p, _, err := d.Pair(k3s.ForServing); err != nil || p.Leaf.VerifyHostname("fd00::7") != nil {
		t.Errorf("%v", err)
	}
}

// TestFails checks that each failure leaves all files as they were, but for the password, and says what is wrong.
func TestFails(t *testing.T) {
	answer := func(path string, code int, body string) func(w http.ResponseWriter, r *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasPrefix(r.URL.Path, path) {
				return false
			}
			http.Error(w, body, code)
			return true
		}
	}
	for name, tt := range map[string]struct {
		prepare func(h *host)
		args    []string
		want    string
	}{
		"a short token":     {prepare: func(h *host) { h.write("token", "secret") }, want: "K10"},
		"another cluster":   {prepare: func(h *host) { h.write("token", "K10"+strings.Repeat("00", 32)+"::server:secret") }, want: "another cluster"},
		"a wrong token":     {prepare: func(h *host) { h.write("token", "K10"+h.Hash()+"::server:wrong") }, want: "does not accept the token"},
		"no token":          {prepare: func(h *host) { h.write("token", "\n") }, want: "token"},
		"no file":           {args: []string{"--token-file", "/nowhere/token"}, want: "/nowhere/token"},
		"another password":  {prepare: func(h *host) { h.SetPassword("pi", "another") }, want: "pi.node-password.k3s"},
		"a broken password": {prepare: func(h *host) { h.write("rancher/password", "") }, want: "rancher/password"},
		"no API server":     {prepare: func(h *host) { h.Answer = answer("/api/", 503, "starting") }, want: "starting"},
		"a refusing API":    {prepare: func(h *host) { h.Answer = answer("/api/", 401, "") }, want: "does not accept the certificate"},
		"no certificates":   {prepare: func(h *host) { h.Answer = answer("/v1-k3s/serving", 500, "broken") }, want: "broken"},
		"no supervisor":     {prepare: func(h *host) { h.Answer = answer("/v1-k3s/", 404, "") }, want: "/v1-k3s/config: 404"},
		"no server":         {args: []string{"--k3s", "https://127.0.0.1:1"}, want: "127.0.0.1:1"},
		"no https":          {args: []string{"--k3s", "http://127.0.0.1:1"}, want: "https://HOST:6443"},
		"a bad name":        {args: []string{"--node-name", "a b"}, want: "--node-name"},
		"a bad address":     {args: []string{"--node-ip", "x"}, want: "--node-ip"},
		"arguments":         {args: []string{"x"}, want: "argument"},
		"strange settings":  {prepare: func(h *host) { h.Config = map[string]any{"ClusterDomain": "a b"} }, want: "ClusterDomain"},
		"an odd file":       {prepare: func(h *host) { h.write("etc/kubelet.yaml", "{maxPods: 3}\n") }, want: "etc/kubelet.yaml"},
		"an invalid file": {prepare: func(h *host) {
			h.write("etc/edge.yaml", "apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\nx: 1\n")
		}, want: "edge.yaml"},
		"a file in between":  {prepare: func(h *host) { h.write("state/k3s", "") }, want: "nothing has changed"},
		"a directory":        {prepare: func(h *host) { h.write("etc/.edge.yaml.new/x", "") }, want: "nothing has changed"},
		"no token, no flags": {args: []string{"--token-file", ""}, want: "--token-file"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.write("etc/kubelet.yaml", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n")
			if tt.prepare != nil {
				tt.prepare(h)
			}
			before := h.files()
			got := h.join(tt.args...)
			if got.Code == 0 || !strings.Contains(got.Err, tt.want) || got.Out != "" || strings.Contains(got.Err, ":"+k3stest.Secret) {
				t.Errorf("%+v, want %q", got, tt.want)
			}
			for file, content := range h.files() {
				old, existed := before[file]
				switch name := filepath.Base(file); {
				case name == "password" && !existed, strings.Contains(file, "/state/k3s/") && name != "current": // not in use
				case !existed || old != content:
					t.Errorf("%s was written: %q", file, content)
				}
			}
			// The command works as soon as the reason is gone.
			h.Answer, h.Config = nil, nil
			h.write("token", h.Token())
			os.RemoveAll(filepath.Join(h.dir, "etc"))
			os.Remove(filepath.Join(h.dir, "state/k3s"))
			os.RemoveAll(filepath.Join(h.dir, "rancher"))
			if got := h.join("--node-name", "other"); got.Code != 0 {
				t.Errorf("afterwards: %+v", got)
			}
		})
	}
}

// TestShort checks that a short token works with consent, and that the result says so. It also checks the warning about a shared key.
func TestShort(t *testing.T) {
	h := newHost(t)
	h.SharedKey = true
	h.Config = map[string]any{"EgressSelectorMode": "disabled"}
	h.write("token", k3stest.BootstrapToken)
	got := h.join("--unsafe-skip-ca-verification")
	if got.Code != 0 || !strings.Contains(got.Out, h.Hash()) || !strings.Contains(got.Out, "same key") ||
		!strings.Contains(got.Out, "egress-selector-mode") {
		t.Errorf("%+v", got)
	}
}
