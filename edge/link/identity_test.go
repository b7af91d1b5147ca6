package link

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/kube/kubetest"
)

func mode(t *testing.T, path string) os.FileMode {
	t.Helper()
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return fi.Mode().Perm()
}

// TestBootstrap checks that a node with a bootstrap token gets a certificate and a kubeconfig. It uses them for its requests without a
// restart. The next start creates no signing request.
func TestBootstrap(t *testing.T) {
	w := newWorld(t)
	w.hold = true
	cfg := w.bootstrap()
	l, stop := w.start(cfg)
	name := <-w.asked
	await(t, l, func(s State) bool {
		return s.Phase == Down && s.Reason == ReasonBootstrapping && strings.Contains(s.Message, name)
	})
	if _, err := kube.Get[corev1.Node](t.Context(), l.Client(), "", "n"); !errors.Is(err, kube.ErrNoLink) ||
		!strings.Contains(err.Error(), name) {
		t.Errorf("the error of a request without credentials is %v", err)
	}
	w.set(func() { w.approve(name) })
	await(t, l, up)
	if _, err := kube.Get[corev1.Node](t.Context(), l.Client(), "", "n"); err != nil {
		t.Error(err)
	}
	if w.seen("system:node:n") == 0 {
		t.Error("the requests are not sent as the node")
	}
	for _, file := range []string{cfg.Kubeconfig, w.path("pki/kubelet-client-current.pem")} {
		if m := mode(t, file); m != 0o600 {
			t.Errorf("%s has mode %o", file, m)
		}
	}
	if target, err := os.Readlink(w.path("pki/kubelet-client-current.pem")); err != nil || filepath.Dir(target) != w.path("pki") {
		t.Errorf("the link leads to %s: %v", target, err)
	}
	if _, err := os.Stat(w.path("pki/kubelet-client.key.tmp")); err == nil {
		t.Error("the pending key was not removed")
	}
	stop()
	if err := os.Remove(cfg.BootstrapKubeconfig); err != nil {
		t.Fatal(err)
	}
	l, _ = w.start(cfg)
	await(t, l, up)
	if len(w.asked) != 0 {
		t.Error("a node with a certificate asks for another")
	}
}

// TestBootstrapContinuesAfterRestart checks that a restarted agent continues with its existing signing request. It does not create a second
// one.
func TestBootstrapContinuesAfterRestart(t *testing.T) {
	w := newWorld(t)
	w.hold = true
	cfg := w.bootstrap()
	l, stop := w.start(cfg)
	name := <-w.asked
	await(t, l, func(s State) bool { return strings.Contains(s.Message, name) })
	stop()
	l, _ = w.start(cfg)
	await(t, l, func(s State) bool { return strings.Contains(s.Message, name) })
	w.set(func() { w.approve(name) })
	await(t, l, up)
	if len(w.asked) != 0 {
		t.Error("a second request")
	}
}

// TestNewFilesEndWait checks that a changed file ends the wait for a signing request that nobody approves: a usable kubeconfig, another
// bootstrap kubeconfig, and another kubeconfig during a rotation. Other changes do not end the wait, nor does the removal of a file. With
// another token, the node creates another request, because the first request has the user of the first token. With the same token, the node
// continues with the first request.
func TestNewFilesEndWait(t *testing.T) {
	const newToken = "123456.0123456789abcdef"
	hold := func(t *testing.T) *world {
		w := newWorld(t)
		w.hold = true
		return w
	}
	client := func(w *world, age, left time.Duration) *api.AuthInfo {
		cert, key := w.server.CA.Client(t, "system:node:n", []string{"system:nodes"}, time.Now().Add(-age), time.Now().Add(left))
		return &api.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	}
	t.Run("kubeconfig", func(t *testing.T) {
		w := hold(t)
		cfg := w.bootstrap()
		l, _ := w.start(cfg)
		name := <-w.asked
		await(t, l, func(s State) bool { return strings.Contains(s.Message, name) })
		w.kubeconfig(cfg.Kubeconfig, client(w, time.Minute, time.Hour))
		await(t, l, up)
	})
	t.Run("kubeconfig after expiry", func(t *testing.T) {
		w := hold(t)
		cfg := w.bootstrap()
		w.kubeconfig(cfg.Kubeconfig, client(w, 2*time.Hour, -time.Hour))
		l, _ := w.start(cfg)
		name := <-w.asked
		await(t, l, func(s State) bool { return strings.Contains(s.Message, name) })
		w.kubeconfig(cfg.Kubeconfig, client(w, time.Minute, time.Hour))
		await(t, l, up)
	})
	t.Run("bootstrap kubeconfig", func(t *testing.T) {
		w, other := hold(t), newWorld(t) // the first cluster is the wrong one
		cfg := w.bootstrap()
		l, _ := w.start(cfg)
		name := <-w.asked
		await(t, l, func(s State) bool { return strings.Contains(s.Message, name) })
		other.kubeconfig(cfg.BootstrapKubeconfig, &api.AuthInfo{Token: token})
		await(t, l, up)
		if s, _, err := Membership(cfg.Kubeconfig); err != nil || s != other.server.URL {
			t.Errorf("the kubeconfig has the server %s: %v", s, err)
		}
	})
	t.Run("rotation", func(t *testing.T) {
		w := hold(t)
		cfg := w.config()
		w.kubeconfig(cfg.Kubeconfig, client(w, 10*time.Hour, time.Hour))
		l, _ := w.start(cfg)
		<-w.asked
		await(t, l, up)
		next := client(w, time.Minute, 10*time.Hour)
		w.kubeconfig(cfg.Kubeconfig, next)
		await(t, l, func(State) bool {
			c, err := l.identity.restConfig()
			return err == nil && bytes.Equal(c.CertData, next.ClientCertificateData)
		})
		await(t, l, up)
	})
	// noticed waits until the node has compared the files again. If a change was pending, it waits for two comparisons.
	noticed := func(l *Link) {
		for range 3 {
			l.identity.filesChanged()
			for len(l.identity.files) > 0 {
				sleep(t.Context(), time.Millisecond)
			}
		}
	}
	t.Run("bootstrap token", func(t *testing.T) { // the requests of the first token are not approved
		w := hold(t)
		w.only = newToken
		w.server.Authenticate = func(r *http.Request) bool { return bearer(r) == newToken || w.authenticate(r) }
		cfg := w.bootstrap()
		l, _ := w.start(cfg)
		name := <-w.asked
		await(t, l, func(s State) bool { return strings.Contains(s.Message, name) })
		w.kubeconfig(cfg.BootstrapKubeconfig, &api.AuthInfo{Token: newToken})
		await(t, l, up)
		if other := <-w.asked; other == name || len(w.asked) != 0 || <-w.reads != token || <-w.reads != newToken || len(w.reads) != 0 {
			t.Errorf("requests %s and %s and %d more, %d more reads", name, other, len(w.asked), len(w.reads))
		}
	})
	t.Run("continued", func(t *testing.T) {
		w := hold(t)
		cfg := w.bootstrap()
		l, _ := w.start(cfg)
		name := <-w.asked
		await(t, l, func(s State) bool { return strings.Contains(s.Message, name) })
		<-w.reads
		w.kubeconfig(cfg.BootstrapKubeconfig, &api.AuthInfo{Token: token}) // unchanged
		w.kubeconfig(w.path("other"), &api.AuthInfo{Token: token})
		noticed(l)
		if err := os.Remove(cfg.BootstrapKubeconfig); err != nil {
			t.Fatal(err)
		}
		noticed(l)
		w.kubeconfig(cfg.BootstrapKubeconfig, &api.AuthInfo{Token: token})
		noticed(l)
		if len(w.reads) != 0 {
			t.Error("the wait has ended without a change")
		}
		w.set(func() { w.approve(name) })
		await(t, l, up)
		if len(w.asked) != 0 || len(w.reads) != 0 {
			t.Error("a second request")
		}
	})
	t.Run("same requester", func(t *testing.T) { // another way to the same cluster
		w := hold(t)
		cfg := w.bootstrap()
		l, _ := w.start(cfg)
		name := <-w.asked
		<-w.reads
		text, err := os.ReadFile(cfg.BootstrapKubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		text = bytes.Replace(text, []byte("    server: "), []byte("    disable-compression: true\n    server: "), 1)
		if err := os.WriteFile(cfg.BootstrapKubeconfig, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := <-w.reads; got != token {
			t.Errorf("read with %q", got)
		}
		w.set(func() { w.approve(name) })
		await(t, l, up)
		if len(w.asked) != 0 {
			t.Error("a second request")
		}
	})
	t.Run("unreadable", func(t *testing.T) { // the state reports the error when the request is no longer watched
		w := hold(t)
		cfg := w.bootstrap()
		l, _ := w.start(cfg)
		name := <-w.asked
		await(t, l, func(s State) bool { return strings.Contains(s.Message, name) })
		if err := os.Remove(cfg.BootstrapKubeconfig); err != nil {
			t.Fatal(err)
		}
		noticed(l)
		w.set(func() { w.events[name] <- watch.Event{Type: watch.Deleted, Object: w.csrs[name]} })
		await(t, l, func(s State) bool {
			return s.Reason == ReasonNoCredentials && strings.Contains(s.Message, cfg.BootstrapKubeconfig)
		})
	})
}

// TestBootstrapCutOff checks the bootstrap of an agent that was killed after it had saved the key pair. The kubeconfig was not written yet.
func TestBootstrapCutOff(t *testing.T) {
	w := newWorld(t)
	cfg := w.bootstrap()
	l, stop := w.start(cfg)
	await(t, l, up)
	stop()
	<-w.asked
	if err := os.Remove(cfg.Kubeconfig); err != nil {
		t.Fatal(err)
	}
	l, _ = w.start(cfg)
	await(t, l, up)
	if len(w.asked) != 0 {
		t.Error("the saved pair is not used")
	}
}

func TestDenied(t *testing.T) {
	w := newWorld(t)
	w.deny = true
	l, _ := w.start(w.bootstrap())
	await(t, l, func(s State) bool { return s.Phase == Down && strings.Contains(s.Message, "not you") })
	if _, err := os.Stat(w.path("pki/kubelet-client.key.tmp")); err == nil {
		t.Error("the key of a denied request was not removed")
	}
}

// TestRotation checks that a certificate is replaced shortly before it expires. No request fails meanwhile.
func TestRotation(t *testing.T) {
	w := newWorld(t)
	cert, key := w.server.CA.Client(t, "system:node:n", []string{"system:nodes"}, time.Now().Add(-1000*time.Hour),
		time.Now().Add(30*time.Minute))
	cfg := w.config()
	w.kubeconfig(cfg.Kubeconfig, &api.AuthInfo{ClientCertificateData: cert, ClientKeyData: key})
	w.hold = true
	l, stop := w.start(cfg)
	name := <-w.asked
	old, _ := l.Expiry()
	rotated := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		var err error
		for more := true; more && err == nil; {
			select {
			case <-rotated:
				more = false
			default:
			}
			_, err = kube.Get[corev1.Node](t.Context(), l.Client(), "", "n")
		}
		ended <- err
	}()
	w.set(func() { w.approve(name) })
	for {
		if until, _ := l.Expiry(); until.After(old) {
			break
		}
		if !sleep(t.Context(), time.Millisecond) {
			t.Fatal("not rotated")
		}
	}
	close(rotated)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	stop()
	l, _ = w.start(cfg) // the kubeconfig still contains the old certificate
	await(t, l, up)
	if until, _ := l.Expiry(); !until.After(old) {
		t.Error("the rotated certificate is not used after a restart")
	}
}

// TestExpiredWhileOff checks that a node with a bootstrap kubeconfig bootstraps again if its certificate has expired.
func TestExpiredWhileOff(t *testing.T) {
	w := newWorld(t)
	cfg := w.bootstrap()
	cert, key := w.server.CA.Client(t, "system:node:n", []string{"system:nodes"}, time.Now().Add(-time.Hour), time.Now().Add(-time.Minute))
	w.kubeconfig(cfg.Kubeconfig, &api.AuthInfo{ClientCertificateData: cert, ClientKeyData: key})
	l, _ := w.start(cfg)
	await(t, l, up)
	<-w.asked
	if until, _ := l.Expiry(); !until.After(time.Now()) {
		t.Errorf("valid until %s", until)
	}
}

// TestExpiredForGood checks a node whose certificate has expired and that has no bootstrap kubeconfig. Its state contains advice. It uses a
// new kubeconfig without a restart.
func TestExpiredForGood(t *testing.T) {
	w := newWorld(t)
	cfg := w.config()
	cert, key := w.server.CA.Client(t, "system:node:n", []string{"system:nodes"}, time.Now().Add(-time.Hour), time.Now().Add(-time.Minute))
	w.kubeconfig(cfg.Kubeconfig, &api.AuthInfo{ClientCertificateData: cert, ClientKeyData: key})
	l, _ := w.start(cfg)
	s := await(t, l, func(s State) bool { return s.Phase == Down })
	if s.Reason != ReasonCertificateExpired || !strings.Contains(s.Message, "--bootstrap-kubeconfig") {
		t.Errorf("got %+v", s)
	}
	cert, key = w.server.CA.Client(t, "system:node:n", []string{"system:nodes"}, time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour))
	w.kubeconfig(cfg.Kubeconfig, &api.AuthInfo{ClientCertificateData: cert, ClientKeyData: key})
	await(t, l, up)
}

func TestNoKubeconfigUntilThereIsOne(t *testing.T) {
	w := newWorld(t)
	cfg := w.config()
	l, _ := w.start(cfg)
	if s := await(t, l, func(s State) bool { return s.Phase == Down }); s.Reason != ReasonNoCredentials {
		t.Errorf("got %+v", s)
	}
	cert, key := w.server.CA.Client(t, "system:node:n", []string{"system:nodes"}, time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour))
	w.kubeconfig(cfg.Kubeconfig, &api.AuthInfo{ClientCertificateData: cert, ClientKeyData: key})
	await(t, l, up)
}

func TestStandalone(t *testing.T) {
	w := newWorld(t)
	cfg := w.config()
	cfg.Kubeconfig = ""
	l, _ := w.start(cfg)
	if s := l.State(); s.Phase != Standalone {
		t.Errorf("got %+v", s)
	}
	cfg.Left = true
	left, _ := w.start(cfg)
	if s := await(t, left, func(s State) bool { return s.Phase == Down }); s.Reason != ReasonNoCredentials {
		t.Errorf("a node whose configuration has no cluster any more: %+v", s)
	}
	if _, err := kube.Get[corev1.Node](t.Context(), l.Client(), "", "n"); err == nil || kube.IsAnswer(err) {
		t.Errorf("got %v", err)
	}
}

// TestOldCA checks a node that was off while the CA of the cluster was replaced. The node connects again when its kubeconfig contains the
// new CA.
func TestOldCA(t *testing.T) {
	w := newWorld(t)
	cfg, now := w.config(), w.server.CA
	w.server.CA = kubetest.NewCA(t)
	cert, key := w.server.CA.Client(t, "system:node:n", []string{"system:nodes"}, time.Now(), time.Now().Add(24*time.Hour))
	w.kubeconfig(cfg.Kubeconfig, &api.AuthInfo{ClientCertificateData: cert, ClientKeyData: key})
	w.server.CA = now
	l, _ := w.start(cfg)
	if s := await(t, l, func(s State) bool { return s.Phase == Down }); s.Reason != ReasonServerCertificate ||
		!strings.Contains(s.Message, cfg.Kubeconfig) {
		t.Errorf("the message does not name the kubeconfig: %+v", s)
	}
	w.kubeconfig(cfg.Kubeconfig, &api.AuthInfo{ClientCertificateData: cert, ClientKeyData: key})
	if s := await(t, l, func(s State) bool { return s.Reason == ReasonUnauthorized }); s.Phase != Down {
		t.Errorf("a certificate of the old CA: %+v", s)
	}
	cert, key = w.server.CA.Client(t, "system:node:n", []string{"system:nodes"}, time.Now(), time.Now().Add(24*time.Hour))
	w.kubeconfig(cfg.Kubeconfig, &api.AuthInfo{ClientCertificateData: cert, ClientKeyData: key})
	await(t, l, up)
}

// TestGivenCertificate checks that the certificate in the kubeconfig of a user is used, although the node's own key pair expires later.
// After the given certificate has expired, the node uses its own key pair.
func TestGivenCertificate(t *testing.T) {
	for name, c := range map[string]struct {
		pairs *kubetest.CA // CA that signs the certificate of the pair; nil means the server's CA
		begin time.Duration
		end   time.Duration
		which string
	}{
		"of another CA": {kubetest.NewCA(t), -time.Minute, 10 * time.Minute, "given"},
		"over":          {nil, -2 * time.Minute, -time.Minute, "pair"},
		"rotated":       {nil, -24 * time.Hour, 10 * time.Minute, "pair"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			cfg, now := w.config(), time.Now()
			signer := w.server.CA
			if c.pairs != nil {
				signer = c.pairs
			}
			ends := map[string]time.Time{"pair": now.Add(24 * time.Hour).Truncate(time.Second),
				"given": now.Add(c.end).Truncate(time.Second)}
			cert, key := signer.Client(t, "system:node:n", []string{"system:nodes"}, now.Add(-time.Hour), ends["pair"])
			if _, err := (pairFiles{dir: cfg.CertDir, prefix: "kubelet-client"}).save(cert, key, now); err != nil {
				t.Fatal(err)
			}
			cert, key = w.server.CA.Client(t, "system:node:n", []string{"system:nodes"}, now.Add(c.begin), ends["given"])
			w.kubeconfig(cfg.Kubeconfig, &api.AuthInfo{ClientCertificateData: cert, ClientKeyData: key})
			l, _ := w.start(cfg)
			await(t, l, up)
			if until, _ := l.Expiry(); !until.Equal(ends[c.which]) {
				t.Errorf("the certificate until %s is used, want the %s until %s", until, c.which, ends[c.which])
			}
		})
	}
}

// TestJoinsAnew checks that a running node bootstraps like a new node when its kubeconfig and its key pairs are removed. The removed
// certificates were signed by another CA.
func TestJoinsAnew(t *testing.T) {
	w := newWorld(t)
	cfg := w.config()
	cfg.BootstrapKubeconfig = w.path("bootstrap.conf")
	now := time.Now()
	cert, key := kubetest.NewCA(t).Client(t, "system:node:n", []string{"system:nodes"}, now.Add(-time.Hour), now.Add(24*time.Hour))
	if _, err := (pairFiles{dir: cfg.CertDir, prefix: "kubelet-client"}).save(cert, key, now); err != nil {
		t.Fatal(err)
	}
	current := filepath.Join(cfg.CertDir, "kubelet-client-current.pem")
	w.kubeconfig(cfg.Kubeconfig, &api.AuthInfo{ClientCertificate: current, ClientKey: current})
	l, _ := w.start(cfg)
	await(t, l, func(s State) bool { return s.Reason == ReasonUnauthorized })
	for _, gone := range []string{cfg.Kubeconfig, cfg.CertDir} {
		if err := os.RemoveAll(gone); err != nil {
			t.Fatal(err)
		}
	}
	w.kubeconfig(cfg.BootstrapKubeconfig, &api.AuthInfo{Token: token})
	await(t, l, up)
	<-w.asked
}

// TestBootstrapGone checks a node whose certificate has expired. Its bootstrap kubeconfig was deleted, as kubeadm does. The node uses a new
// bootstrap kubeconfig as soon as the file exists.
func TestBootstrapGone(t *testing.T) {
	w := newWorld(t)
	cfg := w.config()
	cfg.BootstrapKubeconfig = w.path("bootstrap.conf")
	cert, key := w.server.CA.Client(t, "system:node:n", []string{"system:nodes"}, time.Now().Add(-time.Hour), time.Now().Add(-time.Minute))
	w.kubeconfig(cfg.Kubeconfig, &api.AuthInfo{ClientCertificateData: cert, ClientKeyData: key})
	l, _ := w.start(cfg)
	if s := await(t, l, func(s State) bool {
		return s.Reason == ReasonCertificateExpired &&
			s.Phase == Down
	}); !strings.Contains(s.Message, cfg.BootstrapKubeconfig) && !strings.Contains(s.Message, "bootstrap") {
		t.Errorf("the message does not name the missing file: %+v", s)
	}
	w.kubeconfig(cfg.BootstrapKubeconfig, &api.AuthInfo{Token: token})
	await(t, l, up)
}
