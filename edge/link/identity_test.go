package link

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/islet-edge/islet/edge/kube"
)

func mode(t *testing.T, path string) os.FileMode {
	t.Helper()
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return fi.Mode().Perm()
}

// TestBootstrap: from a token to a certificate, a kubeconfig and requests as the node,
// with no restart; the next start asks for nothing.
func TestBootstrap(t *testing.T) {
	w := newWorld(t)
	w.hold = true
	cfg := w.bootstrap()
	l, stop := w.start(cfg)
	name := <-w.asked
	await(t, l, func(s State) bool {
		return s.Phase == Down && s.Reason == ReasonBootstrapping && strings.Contains(s.Message, name)
	})
	if _, err := kube.Get[corev1.Node](t.Context(), l.Client(), "", "n"); !errors.Is(err, kube.ErrNoLink) || !strings.Contains(err.Error(), name) {
		t.Errorf("a request without credentials says what is missing, not %v", err)
	}
	w.set(func() { w.approve(name) })
	await(t, l, up)
	if _, err := kube.Get[corev1.Node](t.Context(), l.Client(), "", "n"); err != nil {
		t.Error(err)
	}
	if w.seen("system:node:n") == 0 {
		t.Error("the node does not ask as itself")
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
		t.Error("the pending key stays")
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

// TestBootstrapContinuesAfterRestart: the same request, not a second one.
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

// TestBootstrapCutOff: the pair was saved and the kubeconfig not.
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
		t.Error("the key of a denied request stays")
	}
}

// TestRotation: a certificate near its end is replaced while requests run, and none of
// them fails.
func TestRotation(t *testing.T) {
	w := newWorld(t)
	cert, key := w.server.CA.Client(t, "system:node:n", []string{"system:nodes"}, time.Now().Add(-time.Hour), time.Now().Add(time.Minute))
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
	l, _ = w.start(cfg) // the kubeconfig still holds the old one
	await(t, l, up)
	if until, _ := l.Expiry(); !until.After(old) {
		t.Error("the rotated certificate is not used after a restart")
	}
}

// TestExpiredWhileOff: back to bootstrap if that is possible.
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

// TestExpiredForGood: without a bootstrap credential the state says what to do, and a
// new kubeconfig helps without a restart.
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
	if _, err := kube.Get[corev1.Node](t.Context(), l.Client(), "", "n"); err == nil || kube.Answered(err) {
		t.Errorf("got %v", err)
	}
}
