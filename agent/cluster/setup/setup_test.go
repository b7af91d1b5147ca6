package setup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/edge/link"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/setuprecord"
)

// TestJoin checks the files of a node that joins with a token.
func TestJoin(t *testing.T) {
	b, ca := newBoard(t), newCA(t)
	b.write(joining(ca))
	if out := b.inUse(); !out.Applied || out.Name != "kiosk-10000000abcdef01" || out.Server != "https://192.0.2.1:6443" {
		t.Errorf("%+v", out)
	}
	want := "# From " + b.file() + ", by islet setup. Change that file instead.\n--kubeconfig=" + b.Dir + "/kubeconfig\n--bootstrap-kubeconfig=" +
		b.Dir + "/bootstrap.kubeconfig\n--hostname-override=kiosk-10000000abcdef01\n"
	if got := b.made("flags"); got != want {
		t.Errorf("flags %q, want %q", got, want)
	}
	c, _, err := config.Load([]string{"--hostname-override=n", "--state-dir=" + t.TempDir(), "--config=" + b.Dir + "/kubelet.yaml"})
	must(t, err)
	if got := c.Kubelet; got.Authentication.X509.ClientCAFile != b.Dir+"/ca.crt" || fmt.Sprint(got.ClusterDNS) != "[10.96.0.10]" ||
		!got.RotateCertificates {
		t.Errorf("clientCAFile %q, clusterDNS %v, rotateCertificates %v", got.Authentication.X509.ClientCAFile, got.ClusterDNS,
			got.RotateCertificates)
	}
	if b.made("ca.crt") != ca.pem || !strings.Contains(b.made("bootstrap.kubeconfig"), token) || b.made("edge.yaml") != "" {
		t.Error(contents(t, b.Dir))
	}
	for _, name := range []string{"flags", "kubelet.yaml", "ca.crt", "bootstrap.kubeconfig"} {
		if info, err := os.Stat(filepath.Join(b.Dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if info, err := os.Stat(filepath.Join(b.State, setuprecord.File)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if out := b.inUse(); out.Applied {
		t.Error("the same file was applied again")
	}
}

// TestOwnDefaults checks that the settings of a node of a cluster do not replace those of an image or of a file next to islet.yaml.
func TestOwnDefaults(t *testing.T) {
	const own = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nrotateCertificates: false\n" +
		"authentication: {x509: {clientCAFile: /own.crt}}\n"
	ca := newCA(t)
	for _, beside := range []bool{false, true} {
		b := newBoard(t)
		text, path := joining(ca), b.Dir+"/kubelet.yaml"
		if beside {
			text, path = text+"kubeletConfiguration: more.yaml\n", filepath.Join(b.boot, "more.yaml")
		}
		must(t, os.MkdirAll(b.Dir, 0o755), os.WriteFile(path, []byte(own), 0o644))
		b.write(text)
		b.inUse()
		if got := b.made("kubelet.yaml"); !strings.Contains(got, "rotateCertificates: false") || !strings.Contains(got, "/own.crt") ||
			!strings.Contains(got, "10.96.0.10") {
			t.Errorf("beside %v: %s", beside, got)
		}
	}
}

// TestCertificate checks the files of a node with a client certificate, which gives the node its name.
func TestCertificate(t *testing.T) {
	b, ca := newBoard(t), newCA(t)
	cert, key := ca.issue(t, "system:node:kiosk-1")
	b.write(certified("https://x", ca, cert, key))
	if out := b.inUse(); out.Name != "kiosk-1" {
		t.Errorf("%+v", out)
	}
	if flags := b.made("flags"); strings.Contains(flags, "bootstrap") || !strings.Contains(b.made("kubeconfig"), "client-key-data") {
		t.Error(contents(t, b.Dir))
	}
	r, err := load(b.State)
	must(t, err, r.removeSecrets())
	text, err := os.ReadFile(b.file())
	must(t, err)
	for _, line := range strings.Split(strings.TrimSpace(key), "\n") {
		if gone := !strings.Contains(string(text), line); gone != (line[0] != '-' && len(line) >= shortestSecret) {
			t.Errorf("%q is gone: %v", line, gone)
		}
	}
	if !strings.Contains(string(text), strings.Split(cert, "\n")[1]) {
		t.Error("the certificate is damaged")
	}
	if out := b.inUse(); out.Applied {
		t.Error("the file was applied again without its key")
	}
}

// TestBundle checks that the settings of a node without a cluster are added to the settings of an image or of a file next to islet.yaml.
func TestBundle(t *testing.T) {
	b := newBoard(t)
	const edge = "apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\n# of the image\nbridgeName: own0\nbundle: {every: 1h}\n"
	must(t, os.MkdirAll(b.Dir, 0o755), os.WriteFile(b.Dir+"/edge.yaml", []byte(edge), 0o644))
	load := func() config.EdgeConfiguration {
		t.Helper()
		c, _, err := config.Load([]string{"--hostname-override=n", "--state-dir=" + t.TempDir(), "--edge-config=" + b.Dir + "/edge.yaml"})
		must(t, err)
		return c.Edge
	}
	const key = "islet-ed25519 AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
	source := head + "bundle:\n  keys: [" + key + "]\n  source: oci://registry.example.com/kiosk:1\n  every: 2h\n"
	b.write(source)
	b.inUse()
	if e := load(); e.BridgeName != "own0" || e.Bundle.Source == "" || e.Bundle.Every.Hours() != 2 || e.Bundle.Keys[0] != key {
		t.Errorf("%+v", e)
	}
	// When islet.yaml lacks the setting again, the image's setting is back in force.
	b.write(strings.Replace(source, "  every: 2h\n", "", 1))
	b.inUse()
	if e := load(); e.Bundle.Every.Hours() != 1 {
		t.Errorf("%+v", e.Bundle)
	}
	b.write(source + "edgeConfiguration: more.yaml\n")
	must(t, os.WriteFile(filepath.Join(b.boot, "more.yaml"), []byte(strings.Replace(edge, "own0", "own1", 1)), 0o644))
	if got := b.refused(); !strings.Contains(got, "islet.yaml:6: bundle.every: is also set in more.yaml") {
		t.Error(got)
	}
	must(t, os.WriteFile(filepath.Join(b.boot, "more.yaml"), []byte("apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\nbridgeName: own1\nshimPods: -1\n"), 0o644))
	if got := b.refused(); !strings.HasPrefix(got, filepath.Join(b.boot, "more.yaml")+": shimPods: ") {
		t.Error(got)
	}
	must(t, os.WriteFile(filepath.Join(b.boot, "more.yaml"), []byte("apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\nbridgeName: own1\n"), 0o644))
	b.inUse()
	if e := load(); e.BridgeName != "own1" || e.Bundle.Every.Hours() != 2 {
		t.Errorf("%+v", e)
	}
	b.write(head)
	b.inUse()
	if got := b.made("edge.yaml"); got != edge {
		t.Errorf("the file of the image is not back: %q", got)
	}
	if got := b.made("flags"); got != "" {
		t.Errorf("flags %q", got)
	}
}

// TestOtherFlags checks that flags which were in the file stay.
func TestOtherFlags(t *testing.T) {
	b := newBoard(t)
	must(t, os.MkdirAll(b.Dir, 0o755), os.WriteFile(b.Dir+"/flags", []byte("--node-labels=a=b"), 0o644))
	b.write(head + "name: one\n")
	b.inUse()
	b.write(head + "name: two\n")
	b.inUse()
	must(t, os.WriteFile(b.Dir+"/flags", []byte("--config=/elsewhere\n"+b.made("flags")), 0o644))
	b.write(head + "network: {podCIDR: 10.9.0.0/24}\n")
	if got := b.refused(); !strings.Contains(got, "network: "+b.Dir+"/flags has --config") {
		t.Error(got)
	}
	must(t, os.WriteFile(b.Dir+"/flags", []byte(strings.TrimPrefix(b.made("flags"), "--config=/elsewhere\n")), 0o644))
	if got := b.made("flags"); !strings.HasPrefix(got, "--node-labels=a=b\n# From ") || strings.Contains(got, "one") ||
		!strings.Contains(got, "\n--hostname-override=two\n") {
		t.Error(got)
	}
	b.Args = []string{"--hostname_override=x", "--config", "y", "--edge-config=z", "--kubeconfig=k"}
	b.write(head + "name: three\nnetwork: {podCIDR: 10.9.0.0/24}\n")
	if got := b.refused(); !strings.Contains(got, "name: ISLET_ARGS has --hostname-override") ||
		!strings.Contains(got, "network: ISLET_ARGS has --config") || strings.Contains(got, "--edge-config") ||
		strings.Contains(got, "--kubeconfig") {
		t.Error(got)
	}
}

// TestEditedCertificate checks that a board with a certificate may change its cluster until it has joined, also to one with a token.
func TestEditedCertificate(t *testing.T) {
	b, ca := newBoard(t), newCA(t)
	for i, name := range []string{"kiosk-1", "kiosk-2"} {
		cert, key := ca.issue(t, "system:node:"+name)
		b.write(certified(fmt.Sprintf("https://x%d", i), ca, cert, key))
		if out := b.inUse(); out.Name != name || !strings.Contains(b.made("flags"), name) {
			t.Errorf("%+v", out)
		}
	}
	r, err := load(b.State)
	must(t, err)
	r.Joined = true
	must(t, r.store(b.State))
	b.write(joining(ca))
	if got := b.refused(); !strings.Contains(got, "this board has joined https://x1") {
		t.Error(got)
	}
	r.Joined = false
	must(t, r.store(b.State))
	b.inUse()
	if b.made("kubeconfig") != "" || !strings.Contains(b.made("bootstrap.kubeconfig"), token) {
		t.Error(contents(t, b.Dir))
	}
}

// TestLeft checks that the credentials of a file with which the board has never joined are removed with that file. Otherwise a later file
// with another server would be refused, as if the board had joined.
func TestLeft(t *testing.T) {
	ca, other := newCA(t), newCA(t)
	cert, key := ca.issue(t, "system:node:kiosk-1")
	later := strings.Replace(joining(other), "192.0.2.1", "192.0.2.2", 1)
	for name, former := range map[string]string{"a token": joining(ca), "a certificate": certified("https://192.0.2.1:6443", ca, cert, key)} {
		b := newBoard(t)
		b.write(former)
		b.inUse()
		b.write(head)
		b.inUse()
		if got := b.made(kubeconfigFile) + b.made(bootstrapFile); got != "" {
			t.Errorf("%s is left: %s", name, got)
		}
		b.write(later)
		if out := b.inUse(); out.Server != "https://192.0.2.2:6443" || !strings.Contains(b.made(bootstrapFile), token) {
			t.Errorf("after %s: %+v", name, out)
		}
	}
	b := newBoard(t)
	b.write(joining(ca))
	b.inUse()
	b.write(certified("https://192.0.2.1:6443", ca, cert, key))
	b.inUse()
	if got := b.made(bootstrapFile); got != "" || b.made(kubeconfigFile) == "" {
		t.Error(contents(t, b.Dir))
	}
	b = newBoard(t) // the credentials of an image stay
	b.join(ca, "https://192.0.2.1:6443", "kiosk-1")
	must(t, os.WriteFile(filepath.Join(b.Dir, bootstrapFile), []byte("of the image"), 0o600))
	b.write(head)
	b.inUse()
	b.write(head + "name: kiosk-1\n")
	b.inUse()
	if b.made(kubeconfigFile) == "" || b.made(bootstrapFile) != "of the image" {
		t.Error(contents(t, b.Dir))
	}
}

// TestEditors checks files of the editors of other systems: a byte order mark, carriage returns, and UTF-16, which is refused because the
// token could not be found again.
func TestEditors(t *testing.T) {
	b, ca := newBoard(t), newCA(t)
	cert, key := ca.issue(t, "system:node:a")
	b.write("\ufeff" + strings.ReplaceAll(certified("https://x", ca, cert, key), "\n", "\r\n"))
	b.inUse()
	r, err := load(b.State)
	must(t, err, r.removeSecrets())
	if text, err := os.ReadFile(b.file()); err != nil || strings.Contains(string(text), strings.Split(key, "\n")[1]) {
		t.Errorf("%s, %v", text, err)
	}
	wide := ""
	for _, c := range "\ufeff" + joining(ca) {
		wide += string([]byte{byte(c), byte(c >> 8)})
	}
	b = newBoard(t)
	b.write(wide)
	b.refused()
}

// TestEdited checks which changes of the file a board that has joined accepts.
func TestEdited(t *testing.T) {
	b, ca := newBoard(t), newCA(t)
	text := joining(ca)
	b.write(text)
	b.inUse()
	b.write(strings.Replace(text, "kiosk-", "kiosk-a-", 1))
	if out := b.inUse(); out.Name != "kiosk-a-10000000abcdef01" {
		t.Error("a board that has not joined did not get another name")
	}
	b.join(ca, "https://192.0.2.1:6443", "kiosk-a-10000000abcdef01")
	for field, wrong := range map[string]string{
		"name":           text,
		"cluster.server": strings.Replace(strings.Replace(text, "kiosk-", "kiosk-a-", 1), "192.0.2.1", "192.0.2.2", 1),
		"cluster":        head + "name: kiosk-a-{serial}\n",
	} {
		b.write(wrong)
		if got := b.refused(); !strings.Contains(got, field+": this board has joined") {
			t.Errorf("%s: %s", field, got)
		}
	}
	// Another network card or a reader of serial numbers changes nothing.
	b.serials = nil
	text = strings.Replace(text, "kiosk-", "kiosk-a-", 1)
	b.write(text)
	if out := b.inUse(); out.Applied {
		t.Error("applied again")
	}
	if r, err := load(b.State); err != nil || r.Refused != nil {
		t.Errorf("%+v, %v", r.Refused, err)
	}
	b.write(strings.Replace(text, "10.96.0.10", "10.97.0.10", 1))
	if out := b.inUse(); !out.Applied || !strings.Contains(b.made("kubelet.yaml"), "10.97.0.10") {
		t.Error("another setting was not applied")
	}
	b.write(strings.Replace(text, token, newToken, 1))
	if out := b.inUse(); !out.Applied || !strings.Contains(b.made("bootstrap.kubeconfig"), newToken) {
		t.Error("another token was not applied")
	}
	// The record is lost, the token was removed, and the node has its certificate.
	must(t, os.Remove(filepath.Join(b.State, setuprecord.File)))
	b.write(strings.NewReplacer("kiosk-", "kiosk-b-", token, newToken).Replace(text))
	b.serials = []string{"10000000abcdef01"}
	if got := b.refused(); !strings.Contains(got, "name: this board has joined as \"kiosk-a-10000000abcdef01\"") {
		t.Error(got)
	}
	b.write(strings.NewReplacer("192.0.2.1", "192.0.2.2", token, newToken).Replace(text))
	if got := b.refused(); !strings.Contains(got, "cluster.server: this board has joined https://192.0.2.1:6443") {
		t.Error(got)
	}
	b.write(strings.Replace(text, token, strings.Repeat("_", len(token)), 1))
	b.serials = []string{"10000000abcdef01"}
	if out := b.inUse(); !out.Applied || !strings.Contains(b.made("bootstrap.kubeconfig"), newToken) {
		t.Error("the settings were not applied without the token")
	}
}

// TestPowerCut kills the process before each step. Either nothing was done, or the next run completes everything.
func TestPowerCut(t *testing.T) {
	ca := newCA(t)
	program, err := os.Executable()
	must(t, err)
	text := joining(ca) + "bundle: {every: 2h}\n"
	want := ""
	for at := 99; at != 0; { // first without a cut
		b := newBoard(t)
		dir := filepath.Dir(b.boot)
		must(t, os.MkdirAll(b.Dir, 0o755), os.WriteFile(b.Dir+"/edge.yaml", []byte("apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\n"), 0o600))
		before := strings.Join(placed(t, b.Dir), "")
		b.write(text)
		cmd := exec.Command(program)
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", cutVariable, at, dir))
		out, err := cmd.CombinedOutput()
		cut := cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled()
		if err != nil && !cut {
			t.Fatalf("%v: %s", err, out)
		}
		_, err = os.Stat(filepath.Join(b.State, setuprecord.File))
		isStored := err == nil
		if !isStored && strings.Join(placed(t, b.Dir), "") != before {
			t.Error("a file was put in place before the record")
		}
		if result := b.inUse(); result.Applied == isStored {
			t.Errorf("cut at step %d: applied again: %v", at, result.Applied)
		}
		got := strings.ReplaceAll(contents(t, b.Dir), dir, "DIR")
		switch {
		case at == 99:
			want = got
			at = 1
		case got != want:
			t.Errorf("cut at step %d: %s\nwant %s", at, got, want)
			at++
		case cut:
			at++
		default:
			if at < 7 {
				t.Errorf("only %d steps", at-1)
			}
			at = 0
		}
	}
}

// placed returns the names of the files of the configuration that are not staged.
func placed(t *testing.T, dir string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range list {
		if !strings.Contains(e.Name(), stagedSuffix) {
			names = append(names, e.Name())
		}
	}
	return names
}

// TestUnwritable checks that nothing is changed if the record or a file cannot be stored, and that the agent may start then.
func TestUnwritable(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts need root")
	}
	b, ca := newBoard(t), newCA(t)
	b.write(joining(ca))
	must(t, os.MkdirAll(filepath.Join(b.State, setuprecord.File), 0o755))
	if _, err := b.apply(); !errors.As(err, new(*RefusedError)) || contents(t, b.Dir) != "" {
		t.Errorf("got %v", err)
	}
	must(t, os.Remove(filepath.Join(b.State, setuprecord.File)))
	for _, name := range []string{"flags", "ca.crt"} {
		must(t, os.MkdirAll(filepath.Join(b.Dir, name, "x"), 0o755))
		if got := b.refused(); !strings.Contains(got, name) || len(placed(t, b.Dir)) != 1 {
			t.Errorf("a directory has the place of a file: %s", got)
		}
		must(t, os.RemoveAll(filepath.Join(b.Dir, name)))
	}
	must(t, unix.Mount("none", b.Dir, "tmpfs", 0, "size=8k")) // the first file fits
	if got := b.refused(); !strings.Contains(got, "no space") || contents(t, b.Dir) != "" {
		t.Errorf("%s, left %s", got, contents(t, b.Dir))
	}
	must(t, unix.Mount("none", b.Dir, "", unix.MS_REMOUNT, "size=1m"))
	// The disk fails when the files are staged and a part of them is in place.
	steps, failAt := 0, 8
	b.Step = func() {
		if steps++; steps == failAt {
			must(t, unix.Mount("none", b.Dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
		}
	}
	t.Cleanup(func() { must(t, unix.Unmount(b.Dir, unix.MNT_DETACH)) })
	for range 2 {
		if got := b.refused(); !strings.Contains(got, "read-only") {
			t.Error(got)
		}
	}
	if r, err := load(b.State); err != nil || len(r.Pending) == 0 {
		t.Errorf("not partly in place: %v", err)
	}
	synctest.Test(t, func(t *testing.T) { // the agent changes nothing of that
		w := watchBoard(t, b)
		w.set(link.Up, "")
		<-w.ended
		if text, err := os.ReadFile(b.file()); err != nil || !strings.Contains(string(text), token) {
			t.Errorf("the token is gone: %v", err)
		}
	})
	must(t, unix.Mount("none", b.Dir, "", unix.MS_REMOUNT, ""))
	b.inUse()
	if b.made("ca.crt") != ca.pem || !strings.Contains(b.made("flags"), "kiosk") || strings.Contains(contents(t, b.Dir), stagedSuffix) {
		t.Error(contents(t, b.Dir))
	}
	if r, err := load(b.State); err != nil || r.Refused != nil || len(r.Pending) > 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestOtherCluster checks that credentials of another cluster, from an earlier file or from the image, are not used for the cluster of the
// file.
func TestOtherCluster(t *testing.T) {
	ca, other := newCA(t), newCA(t)
	hashed := head + "name: kiosk-1\ncluster:\n  server: https://192.0.2.2:6443\n  caHash: " + other.hash + "\n  token: " + newToken + "\n"
	b := newBoard(t)
	b.write(joining(ca))
	b.inUse()
	b.write(hashed)
	b.inUse()
	if b.made("bootstrap.kubeconfig")+b.made("ca.crt") != "" {
		t.Errorf("those of the earlier file: %s", contents(t, b.Dir))
	}
	b = newBoard(t)
	image := kubeconfig("https://192.0.2.1:6443", ca.pem, tokenUser(token))
	must(t, os.MkdirAll(b.Dir, 0o755), os.WriteFile(b.Dir+"/bootstrap.kubeconfig", image, 0o600))
	b.write(hashed)
	b.inUse()
	if b.made("bootstrap.kubeconfig") != "" {
		t.Error("that of the image is still there")
	}
	b = newBoard(t)
	b.join(ca, "https://192.0.2.1:6443", "kiosk-1")
	b.write(hashed)
	if got := b.refused(); !strings.Contains(got, "cluster.server: this board has joined https://192.0.2.1:6443") {
		t.Error(got)
	}
	synctest.Test(t, func(t *testing.T) { // the agent joined the other cluster while the file was applied
		b := newBoard(t)
		b.write(joining(other))
		b.inUse()
		w := watchBoard(t, b)
		w.setServer("https://192.0.2.9")
		w.set(link.Up, "")
		time.Sleep(patience + time.Second)
		synctest.Wait()
		if said := w.said(); !strings.Contains(said, "has not joined https://192.0.2.1:6443: its credentials are those of https://192.0.2.9") {
			t.Errorf("%q", said)
		}
		if text, err := os.ReadFile(b.file()); err != nil || !strings.Contains(string(text), token) {
			t.Errorf("the token is gone: %v", err)
		}
	})
}

// TestTokenAsName checks that a token in the wrong place is in no message.
func TestTokenAsName(t *testing.T) {
	b, ca := newBoard(t), newCA(t)
	b.write(head + "cluster: {server: https://x, caHash: \"" + ca.hash + "\", token:" + token + "}\n")
	if got := b.refused(); strings.Contains(got, token) || !strings.Contains(got, "unknown field") {
		t.Error(got)
	}
}
