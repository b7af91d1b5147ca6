package setup

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/k3s"
	"github.com/islet-edge/islet/internal/setuprecord"
)

// clusterFields are the fields that the command islet join sets in kubelet.yaml, except those of certificates.
const clusterFields = "clusterDNS: [10.43.0.10]\nclusterDomain: k3s.local\nrotateCertificates: false\nserverTLSBootstrap: false\n"

// joinK3s does what the command islet join does, until the given function returns an error. The function may be nil.
func (b *board) joinK3s(name string, check func() error) (edge string) {
	b.t.Helper()
	root, path, kubeletPath := k3s.Root(b.State), filepath.Join(b.Dir, edgeFile), filepath.Join(b.Dir, kubeletFile)
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		b.t.Fatal(err)
	}
	text, _, err := config.SetFields(path, old, true, map[string]any{"k3s.directory": string(k3s.Current(root))})
	must(b.t, err)
	kubelet := fmt.Appendf(nil, "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n%stlsCertFile: %[2]s\n"+
		"tlsPrivateKeyFile: %[2]s\nauthentication: {x509: {clientCAFile: %s}}\n", clusterFields,
		k3s.Current(root).PairFile(k3s.ForServing), k3s.Current(root).ClientCA())
	l, err := k3s.Lock(root)
	must(b.t, err)
	defer l.Close()
	if check == nil {
		check = func() error { return nil }
	}
	err = k3s.Store(root, &k3s.Cluster{
		Record: k3s.Record{Server: "https://192.0.2.5:6443", APIServer: "https://192.0.2.5:6444", Node: name},
		Client: &k3s.Pair{}, Serving: &k3s.Pair{},
	}, []k3s.File{{Path: path, Mode: 0o644, Old: old, New: text}, {Path: kubeletPath, Mode: 0o644, New: kubelet}}, check)
	must(b.t, err)
	return string(text)
}

// k3sDirectory returns the directory of the cluster in edge.yaml.
func (b *board) k3sDirectory() k3s.Directory {
	b.t.Helper()
	d, err := k3sDirectory([]byte(b.made(edgeFile)))
	must(b.t, err)
	return d
}

// TestK3s checks that a board which has joined by islet join keeps that cluster, its name and its directory.
func TestK3s(t *testing.T) {
	b, ca := newBoard(t), newCA(t)
	b.write(head + "name: kiosk-1\nbundle: {every: 1h}\n")
	b.inUse()
	edge := b.joinK3s("kiosk-1", nil)
	before := contents(t, b.Dir)
	cert, key := ca.issue(t, "system:node:kiosk-1")
	const other = "apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\nk3s: {directory: /elsewhere}\n"
	must(t, os.WriteFile(filepath.Join(b.boot, "more.yaml"), []byte(other), 0o644))
	const joined = ": this board has joined "
	wrong := map[string]string{
		"cluster" + joined + "https://192.0.2.5:6444 by islet join": joining(ca),
		":4: cluster" + joined:                        strings.Replace(joining(ca), "kiosk-{serial}", "kiosk-1", 1),
		":3: cluster" + joined:                        certified("https://192.0.2.5:6444", ca, cert, key),
		":3: name" + joined + "as \"kiosk-1\"":        head + "name: kiosk-2\n",
		"name" + joined + "as \"kiosk-1\", and keeps": head,
		":4: edgeConfiguration: more.yaml has another value for k3s.directory" + joined + "https://192.0.2.5:6444 by islet j": head +
			"name: kiosk-1\nedgeConfiguration: more.yaml\n",
	}
	for _, want := range slices.Sorted(maps.Keys(wrong)) {
		b.write(wrong[want])
		if got := b.refused(); !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
		if got := contents(t, b.Dir); got != before {
			t.Errorf("%s: files have changed: %s", want, got)
		}
	}
	b.write(head + "name: kiosk-1\nbundle: {every: 2h}\n")
	b.inUse()
	if got := b.made(edgeFile); !strings.Contains(got, "2h") || b.k3sDirectory() != k3s.Current(k3s.Root(b.State)) {
		t.Error(got)
	}
	for _, more := range []string{"apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\n", edge} {
		must(t, os.WriteFile(filepath.Join(b.boot, "more.yaml"), []byte(more+"bridgeName: own0\n"), 0o644))
		b.write(head + "name: kiosk-1\nedgeConfiguration: more.yaml\n")
		b.inUse()
		if got := b.made(edgeFile); !strings.Contains(got, "own0") || b.k3sDirectory() != k3s.Current(k3s.Root(b.State)) {
			t.Error(got)
		}
	}
	b.write(head + "name: kiosk-1\n") // the earlier edge.yaml has the directory
	b.inUse()
	must(t, os.RemoveAll(k3s.Root(b.State)))
	b.write(joining(ca))
	b.inUse()
}

// TestK3sUnfinished checks that the files of an islet join that a power cut has interrupted are completed first. If they cannot be
// completed, nothing else is changed.
func TestK3sUnfinished(t *testing.T) {
	b, ca := newBoard(t), newCA(t)
	b.write(head + "name: kiosk-1\n")
	b.inUse()
	var list []byte
	unfinished := filepath.Join(string(k3s.Current(k3s.Root(b.State))), "unfinished.json")
	edge := b.joinK3s("kiosk-1", func() (err error) {
		list, err = os.ReadFile(unfinished)
		return err
	})
	must(t, os.WriteFile(unfinished, list, 0o600), os.WriteFile(filepath.Join(b.Dir, edgeFile), []byte("edited"), 0o644))
	b.write(joining(ca))
	if got := b.refused(); !strings.Contains(got, "islet join was interrupted") || b.made(edgeFile) != "edited" ||
		b.made(bootstrapFile) != "" {
		t.Error(got, contents(t, b.Dir))
	}
	must(t, os.Remove(filepath.Join(b.Dir, edgeFile)))
	if got := b.refused(); !strings.Contains(got, "cluster: this board has joined https://192.0.2.5:6444") || b.made(edgeFile) != edge {
		t.Error(got, contents(t, b.Dir))
	}
}

// TestK3sFields checks that a KubeletConfiguration next to islet.yaml leaves the fields of islet join as they are, that it may set the DNS
// of the cluster, and that it may set no other certificates.
func TestK3sFields(t *testing.T) {
	b := newBoard(t)
	b.joinK3s("kiosk-1", nil)
	use := func(fields string) {
		text := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + fields
		must(t, os.WriteFile(filepath.Join(b.boot, "more.yaml"), []byte(text), 0o644))
		b.write(head + "name: kiosk-1\nkubeletConfiguration: more.yaml\n# " + strings.ReplaceAll(fields, "\n", " ") + "\n")
	}
	serving, ca := k3s.Current(k3s.Root(b.State)).PairFile(k3s.ForServing), k3s.Current(k3s.Root(b.State)).ClientCA()
	check := func(dns, domain string) {
		t.Helper()
		c, _, err := config.Load([]string{"--config=" + filepath.Join(b.Dir, kubeletFile), "--edge-config=" + filepath.Join(b.Dir, edgeFile)})
		must(t, err)
		k := &c.Kubelet
		if k.TLSCertFile != serving || k.TLSPrivateKeyFile != serving || k.Authentication.X509.ClientCAFile != ca || k.RotateCertificates ||
			k.ServerTLSBootstrap || !slices.Equal(k.ClusterDNS, []string{dns}) || k.ClusterDomain != domain || k.MaxPods != 7 {
			t.Error(b.made(kubeletFile))
		}
	}
	use("maxPods: 7\n")
	b.inUse()
	check("10.43.0.10", "k3s.local")
	use("maxPods: 7\nclusterDNS: [10.96.0.10]\ntlsCertFile: " + serving + "\n")
	b.inUse()
	check("10.96.0.10", "k3s.local")
	use("maxPods: 7\nclusterDomain: own.local\n") // the earlier value returns
	b.inUse()
	check("10.43.0.10", "own.local")
	before := b.made(kubeletFile)
	for field, value := range map[string]string{"tlsCertFile": "/c", "tlsPrivateKeyFile": "/k", "rotateCertificates": "true", "serverTLSBootstrap": "true",
		"authentication": "{x509: {clientCAFile: /ca}}"} {
		use(field + ": " + value + "\n")
		if got := b.refused(); !strings.Contains(got, ":4: kubeletConfiguration: more.yaml has another value for "+field) || b.made(kubeletFile) != before {
			t.Errorf("%s: %s", field, got)
		}
	}
}

// TestK3sMistake checks a file next to islet.yaml that would replace a configuration with a mistake. It does not replace the configuration
// on a board that has joined by islet join, because the fields of islet join would be lost. It does on any other board.
func TestK3sMistake(t *testing.T) {
	for name, c := range map[string]struct{ field, more string }{
		kubeletFile: {"kubeletConfiguration", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 7\n"},
		edgeFile:    {"edgeConfiguration", "apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\nbridgeName: own0\n"},
	} {
		for _, hasJoined := range []bool{true, false} {
			for _, mistake := range []string{"noSuchField: 1\n", "\tmaxPods: 1\n", "---\na: b\n"} {
				b := newBoard(t)
				b.joinK3s("kiosk-1", nil)
				if !hasJoined {
					must(t, os.RemoveAll(k3s.Root(b.State)))
				}
				broken := b.made(name) + mistake
				must(t, os.WriteFile(filepath.Join(b.Dir, name), []byte(broken), 0o644),
					os.WriteFile(filepath.Join(b.boot, "more.yaml"), []byte(c.more), 0o644))
				b.write(head + "name: kiosk-1\n" + c.field + ": more.yaml\n")
				if !hasJoined {
					b.inUse()
					continue
				}
				before := contents(t, b.Dir)
				if got := b.refused(); !strings.Contains(got, ":4: "+c.field+": "+filepath.Join(b.Dir, name)) || contents(t, b.Dir) != before {
					t.Errorf("%s with %q: %s", name, mistake, got)
				}
			}
		}
	}
}

// TestRestore checks that a file is refused while an interrupted restore of a backup must be completed by the agent. Nothing is written
// then, because the restore also replaces the record.
func TestRestore(t *testing.T) {
	b := newBoard(t)
	must(t, os.MkdirAll(b.State, 0o700), os.WriteFile(filepath.Join(b.State, k3s.RestoreFile), nil, 0o600))
	b.write(head + "name: kiosk-1\n")
	out, err := b.apply()
	if _, stat := os.Stat(filepath.Join(b.State, setuprecord.File)); !errors.As(err, new(*RefusedError)) || out != (Result{}) ||
		contents(t, b.Dir) != "" || !errors.Is(stat, os.ErrNotExist) {
		t.Error(out, err, stat, contents(t, b.Dir))
	}
	must(t, os.Remove(filepath.Join(b.State, k3s.RestoreFile)))
	if out := b.inUse(); !out.Applied {
		t.Error(out)
	}
}

// isAwaited reports whether this process waits for the lock of the state directory. See proc_locks(5).
func (b *board) isAwaited() bool {
	b.t.Helper()
	info, err := os.Stat(b.State)
	must(b.t, err)
	list, err := os.ReadFile("/proc/locks")
	must(b.t, err)
	for line := range strings.Lines(string(list)) {
		// Such as: 1: -> FLOCK  ADVISORY  WRITE 4711 fd:01:1234 0 EOF
		f := strings.Fields(line)
		if len(f) > 6 && f[1] == "->" && f[5] == fmt.Sprint(os.Getpid()) &&
			strings.HasSuffix(f[6], fmt.Sprint(":", info.Sys().(*syscall.Stat_t).Ino)) {
			return true
		}
	}
	return false
}

// TestK3sWaits checks that islet join replaces no file while islet setup changes the files, and notices the change.
func TestK3sWaits(t *testing.T) {
	b := newBoard(t)
	b.write(head + "name: kiosk-1\nbundle: {every: 1h}\n")
	stored := make(chan error, 1)
	var once sync.Once
	b.Step = func() {
		once.Do(func() {
			root := k3s.Root(b.State)
			l, err := k3s.Lock(root)
			must(t, err)
			go func() {
				err := k3s.Store(root, &k3s.Cluster{Client: &k3s.Pair{}, Serving: &k3s.Pair{}},
					[]k3s.File{{Path: filepath.Join(b.Dir, edgeFile), Mode: 0o644, New: []byte("joined")}}, func() error { return nil })
				stored <- errors.Join(err, l.Close())
			}()
			for len(stored) == 0 && !b.isAwaited() {
				runtime.Gosched()
			}
		})
	}
	b.inUse()
	if err := <-stored; err == nil || !strings.Contains(b.made(edgeFile), "1h") {
		t.Error(err, b.made(edgeFile))
	}
}
