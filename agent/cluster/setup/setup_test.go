package setup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// TestOtherFlags checks that other flags in the flags file stay, and that a setting that a flag would replace is a mistake, also if the
// flag is written with an underscore.
func TestOtherFlags(t *testing.T) {
	b := newBoard(t)
	must(t, os.MkdirAll(b.Dir, 0o755), os.WriteFile(b.Dir+"/flags", []byte("# --config=/x\n--node-labels=a=b"), 0o644))
	b.write(head + "name: one\n")
	b.inUse()
	b.write(head + "name: two\nnetwork: {podCIDR: 10.8.0.0/24}\n")
	b.inUse()
	flags := b.made("flags")
	for _, c := range []struct{ flag, text, want string }{
		{"--config", "network: {podCIDR: 10.9.0.0/24}\n", "network: %s has --config"},
		{"--pod-cidr", "network: {podCIDR: 10.9.0.0/24}\n", "network.podCIDR: %s has --pod-cidr"},
		{"--cluster-dns", "network: {clusterDNS: [10.9.0.1]}\n", "network.clusterDNS: %s has --cluster-dns"},
		{"--cluster-domain", "network: {clusterDomain: a.b}\n", "network.clusterDomain: %s has --cluster-domain"},
		{"--edge-config", "bundle: {every: 1h}\n", "edgeConfiguration: %s has --edge-config"},
		{" --edge_config", "bundle: {every: 2h}\n", "edgeConfiguration: %s has --edge-config"},
	} {
		must(t, os.WriteFile(b.Dir+"/flags", []byte(c.flag+"=/elsewhere\n"+flags), 0o644))
		b.write(head + c.text)
		if got := b.refused(); !strings.Contains(got, fmt.Sprintf(c.want, b.Dir+"/flags")) {
			t.Error(got)
		}
	}
	must(t, os.WriteFile(b.Dir+"/flags", []byte(flags), 0o644))
	if got := b.made("flags"); !strings.HasPrefix(got, "# --config=/x\n--node-labels=a=b\n# From ") || strings.Contains(got, "one") ||
		!strings.Contains(got, "\n--hostname-override=two\n") {
		t.Error(got)
	}
	b.Args = []string{"--hostname_override=x", "--config", "y", "--edge-config=z", "--kubeconfig=k", "--cluster-dns=192.0.2.1"}
	b.write(head + "name: three\nnetwork: {podCIDR: 10.9.0.0/24}\n")
	if got := b.refused(); !strings.Contains(got, "name: ISLET_ARGS has --hostname-override") ||
		!strings.Contains(got, "network: ISLET_ARGS has --config") || strings.Contains(got, "--edge-config") ||
		strings.Contains(got, "--kubeconfig") || strings.Contains(got, "--cluster-dns") {
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
		time.Sleep(patience + time.Second) // in the bubble's time
		synctest.Wait()
		if said := w.said(); !strings.Contains(said, "has not joined https://192.0.2.1:6443: its credentials belong to https://192.0.2.9") {
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
