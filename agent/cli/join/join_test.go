package join_test

import (
	"context"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/agent/cli"
	"github.com/islet-edge/islet/agent/cli/clitest"
	"github.com/islet-edge/islet/agent/cli/command"
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

// join runs the command with the directories of the host.
func (h *host) join(args ...string) clitest.Result {
	h.t.Helper()
	return run(h.t, nil, h.Token(), h.args(args...)...)
}

// args returns the arguments of the command.
func (h *host) args(args ...string) []string {
	return append([]string{"join", "--k3s", h.URL, "--token-file", filepath.Join(h.dir, "token"), "--node-name", "Pi",
		"--state-dir", filepath.Join(h.dir, "state"), "--config-dir", filepath.Join(h.dir, "etc"),
		"--password-file", filepath.Join(h.dir, "rancher", "password")}, args...)
}

// files returns the content of all files, by their names. A link is shown by its target.
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

// load loads the configuration that an agent of the host has.
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
	if m, err := d.Record(); err != nil || !strings.Contains(got.Out, "kubectl label node "+m.Node+" islet.dev/node=true") {
		t.Errorf("%v: the label of the DaemonSets is missing: %s", err, got.Out)
	}
	serving := d.PairFile(k3s.ForServing)
	if c.Kubeconfig != d.Kubeconfig() || c.Kubelet.TLSCertFile != serving || c.Kubelet.TLSPrivateKeyFile != serving ||
		c.Kubelet.MaxPods != 30 ||
		c.Kubelet.Authentication.X509.ClientCAFile != d.ClientCA() || strings.Join(c.Kubelet.ClusterDNS, " ") != "10.43.0.10" ||
		c.Kubelet.ClusterDomain != "cluster.local" || c.Kubelet.RotateCertificates ||
		*c.Kubelet.FailSwapOn || *c.Kubelet.Authentication.Anonymous.Enabled {
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
		"a restore":          {prepare: func(h *host) { h.write("state/restore.json", "{}") }, want: "islet restore was interrupted"},
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
			if got.Code == 0 || !strings.Contains(got.Err, tt.want) || got.Out != "" || strings.Contains(got.Err, k3stest.Secret) {
				t.Errorf("%+v, want %q", got, tt.want)
			}
			for file, content := range h.files() {
				old, existed := before[file]
				if isNew := filepath.Base(file) == "password" && !existed; !isNew && (!existed || old != content) {
					t.Errorf("%s was written: %q", file, content)
				}
			}
			if left, err := os.ReadDir(filepath.Join(h.dir, "state/k3s")); len(left) > 0 && err == nil {
				t.Errorf("state/k3s has %v", left)
			}
			// The command works as soon as the reason is gone.
			h.Answer, h.Config = nil, nil
			h.write("token", h.Token())
			os.RemoveAll(filepath.Join(h.dir, "etc"))
			os.Remove(filepath.Join(h.dir, "state/k3s"))
			os.Remove(filepath.Join(h.dir, "state/restore.json"))
			os.RemoveAll(filepath.Join(h.dir, "rancher"))
			if got := h.join("--node-name", "other"); got.Code != 0 {
				t.Errorf("afterwards: %+v", got)
			}
		})
	}
}

// TestService checks that the command fails, and changes nothing, if the flags of the installed service are stronger than its result. The
// name of the node is that of the service.
func TestService(t *testing.T) {
	h := newHost(t)
	files := []string{"--config=" + filepath.Join(h.dir, "etc/kubelet.yaml"), "--edge-config=" + filepath.Join(h.dir, "etc/edge.yaml")}
	h.write("etc/kubelet.yaml", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n")
	h.write("etc/edge.yaml", "apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\n")
	h.write("kubeconfig", "")
	usual := append(files, "--hostname-override=board", "--state-dir="+filepath.Join(h.dir, "state"))
	join := func(name string, flags ...string) clitest.Result {
		main := func(ctx context.Context, args []string, env command.Env) int {
			env.ServiceFlags = func() ([]string, bool) { return flags, true }
			return cli.Main(ctx, args, env)
		}
		return clitest.Run(main)(t, nil, "", h.args("--node-name", name)...)
	}
	before := h.files()
	for want, flags := range map[string][]string{
		"--kubeconfig":           append(usual, "--kubeconfig="+filepath.Join(h.dir, "kubeconfig")),
		"--bootstrap-kubeconfig": append(usual, "--kubeconfig=/nowhere", "--bootstrap-kubeconfig="+filepath.Join(h.dir, "kubeconfig")),
		"--hostname-override=pi": append(usual, "--hostname-override=other"),
		"--state-dir=/elsewhere": append(usual, "--hostname-override=pi", "--state-dir=/elsewhere"),
		"--edge-config":          {"--hostname-override=pi", "--state-dir=" + filepath.Join(h.dir, "state")},
		"remove --tls-cert-file and --tls-private-key-file from ISLET_ARGS": append(usual, "--hostname-override=pi", "--tls-cert-file=/c", "--tls-private-key-file=/c"),
		"remove --client-ca-file from ISLET_ARGS":                           append(usual, "--hostname-override=pi", "--client-ca-file="+filepath.Join(h.dir, "kubeconfig")),
		"would not start: unknown":                                          append(usual, "--unknown"),
	} {
		if got := join("pi", flags...); got.Code == 0 || !strings.Contains(got.Err, want) || got.Out != "" {
			t.Errorf("%s: %+v", want, got)
		}
		for file, content := range h.files() {
			if old, existed := before[file]; filepath.Base(file) != "password" && (!existed || content != old) {
				t.Errorf("%s: %s was written: %q", want, file, content)
			}
		}
	}
	got := join("", usual...)
	r, err := k3s.Current(filepath.Join(h.dir, "state/k3s")).Record()
	if got.Code != 0 || strings.Contains(got.Out, "--hostname-override") || err != nil || r.Node != "board" {
		t.Errorf("%+v, %+v, %v", got, r, err)
	}
	if got := join("", usual...); got.Code != 0 {
		t.Errorf("a repetition: %+v", got)
	}
	ca, err := os.ReadFile(k3s.Current(filepath.Join(h.dir, "state/k3s")).ClientCA())
	h.write("bundle", "another\n"+string(ca))
	if got := join("", append(usual, "--client-ca-file="+filepath.Join(h.dir, "bundle"))...); err != nil || got.Code != 0 {
		t.Errorf("a file with the CA and another one: %v, %+v", err, got)
	}
}

// TestPlanned checks which flags count if no service is installed: those in the files of a service to come, unless the command names
// another directory of the configuration.
func TestPlanned(t *testing.T) {
	h := newHost(t)
	for name, own := range map[string]bool{"own": true, "planned": false} {
		main := func(ctx context.Context, args []string, env command.Env) int {
			env.ServiceFlags = func() ([]string, bool) { return nil, false }
			env.PlannedFlags = func() ([]string, bool) { return []string{"--hostname-override=left"}, true }
			return cli.Main(ctx, args, env)
		}
		args := []string{"--node-name", "pi"}
		if !own {
			args = append(args, "--config-dir="+config.DefaultDir+"/", "--k3s=https://127.0.0.1:1") // so that a mistake writes nothing
		}
		got := clitest.Run(main)(t, nil, "", h.args(args...)...)
		if (got.Code == 0) != own || !own && !strings.Contains(got.Err, "starts the agent as the node") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestMeanwhile checks that a second command does not begin, and that a change of a file while the command waits for the server stays.
func TestMeanwhile(t *testing.T) {
	h := newHost(t)
	edited := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 7\n"
	h.Answer = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasPrefix(r.URL.Path, "/v1-k3s/serving") {
			h.write("etc/kubelet.yaml", edited)
			if got := h.join(); got.Code == 0 || !strings.Contains(got.Err, "another islet join") {
				t.Errorf("the second command: %+v", got)
			}
		}
		return false
	}
	got := h.join()
	if got.Code == 0 || !strings.Contains(got.Err, "kubelet.yaml") || h.files()[filepath.Join(h.dir, "etc/kubelet.yaml")] != edited {
		t.Errorf("%+v", got)
	}
	h.Answer = nil
	if got := h.join(); got.Code != 0 || h.load().Kubelet.MaxPods != 7 {
		t.Errorf("%+v", got)
	}
}

// TestKeptToken checks that a token and keys that a later command does not keep are removed.
func TestKeptToken(t *testing.T) {
	h := newHost(t)
	for i, args := range [][]string{{"--keep-token"}, nil} {
		if got := h.join(args...); got.Code != 0 {
			t.Fatalf("%+v", got)
		}
		keys, tokens := 0, 0
		for name, content := range h.files() {
			if strings.Contains(name, "/state/") {
				keys += strings.Count(content, "BEGIN EC PRIVATE KEY")
				tokens += strings.Count(content, h.Token())
			}
		}
		if keys != 2 || tokens != 1-i {
			t.Errorf("%v: %d keys and %d tokens are left", args, keys, tokens)
		}
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
