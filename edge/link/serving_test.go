package link

import (
	"crypto/x509"
	"net/netip"
	"os"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd/api"
)

func shown(t *testing.T, l *Link) *x509.Certificate {
	t.Helper()
	c, err := l.ServingCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	return c.Leaf
}

// TestSelfSigned checks that the serving certificate is created once and kept over restarts. If its two files do not match, it is replaced.
// It is valid for the names of the node. Other users cannot read the key.
func TestSelfSigned(t *testing.T) {
	w := newWorld(t)
	cfg := w.config()
	l, stop := w.start(cfg)
	first := shown(t, l)
	if err := first.VerifyHostname("192.0.2.1"); err != nil {
		t.Error(err)
	}
	if m := mode(t, w.path("pki/kubelet.key")); m != 0o600 {
		t.Errorf("the key has mode %o", m)
	}
	stop()
	l, stop = w.start(cfg)
	if !shown(t, l).Equal(first) {
		t.Error("created again without a need")
	}
	stop()
	if err := os.WriteFile(w.path("pki/kubelet.key"), []byte("-----BEGIN"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, _ = w.start(cfg)
	if shown(t, l).Equal(first) {
		t.Error("a certificate without its key")
	}
}

// TestServerTLSBootstrap checks that the control plane signs the serving certificate. When the address of the node changes, the control
// plane signs a new certificate.
func TestServerTLSBootstrap(t *testing.T) {
	w := newWorld(t)
	cert, key := w.server.CA.Client(t, "system:node:n", []string{"system:nodes"}, time.Now(), time.Now().Add(24*time.Hour))
	cfg := w.config()
	cfg.ServerTLSBootstrap = true
	w.kubeconfig(cfg.Kubeconfig, &api.AuthInfo{ClientCertificateData: cert, ClientKeyData: key})
	w.hold = true
	l, _ := w.start(cfg)
	name := <-w.asked
	if _, err := l.ServingCertificate(nil); err == nil {
		t.Error("want an error while there is no certificate")
	}
	l.SetAddresses([]string{"n"}, []netip.Addr{netip.MustParseAddr("192.0.2.2")})
	next := <-w.asked // the first request is still unanswered
	if next == name {
		t.Error("the same request for other names")
	}
	l.SetAddresses([]string{"n"}, []netip.Addr{netip.MustParseAddr("192.0.2.2")}) // the same addresses as before
	w.set(func() { w.approve(next) })
	waitFor(t, func() bool { _, err := l.ServingCertificate(nil); return err == nil })
	select {
	case again := <-w.asked:
		t.Errorf("%s was requested too", again)
	default:
	}
	if err := shown(t, l).VerifyHostname("192.0.2.2"); err != nil {
		t.Error(err)
	}
	if _, err := shown(t, l).Verify(x509.VerifyOptions{Roots: w.server.CA.Pool()}); err != nil {
		t.Error(err)
	}
	ages := make(chan time.Duration, 2)
	l.ObserveRotation(func(age time.Duration) { ages <- age })
	before := time.Since(shown(t, l).NotBefore)
	l.SetAddresses([]string{"n"}, []netip.Addr{netip.MustParseAddr("192.0.2.3")})
	next = <-w.asked
	w.set(func() { w.approve(next) })
	if age := <-ages; age < before || age > before+time.Hour {
		t.Errorf("a certificate that is %s old was replaced, and its age is reported as %s", before, age)
	}
	if err := shown(t, l).VerifyHostname("192.0.2.3"); err != nil {
		t.Error(err)
	}
}

// TestLoadedBeforeSet checks a client that connects after the first certificate was written to its file, and before set is called. The
// client's request loads the certificate from the file. The call of set is then not a rotation.
func TestLoadedBeforeSet(t *testing.T) {
	w := newWorld(t)
	cfg := w.config()
	cfg.ServerTLSBootstrap = true
	l, _ := w.start(cfg)
	s := newServing(l)
	for i, want := range []int{0, 1} { // number of rotations
		cert, key := w.server.CA.Client(t, "n", nil, time.Now(), time.Now().Add(time.Hour))
		p, err := s.pairs.save(cert, key, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.currentCert(); err != nil {
			t.Fatal(err)
		}
		if former := s.set(p.cert); (former != nil) != (want == 1) {
			t.Errorf("certificate %d: a former one: %v", i, former != nil)
		}
	}
}

// TestServingFiles checks that new certificate files are used without a restart. Incomplete files do not replace a valid certificate.
func TestServingFiles(t *testing.T) {
	w := newWorld(t)
	cfg := w.config()
	cfg.TLSCertFile, cfg.TLSKeyFile = w.path("tls.crt"), w.path("tls.key")
	put := func(name string) {
		cert, key := w.server.CA.Client(t, name, nil, time.Now(), time.Now().Add(time.Hour))
		if err := os.WriteFile(cfg.TLSKeyFile, key, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(cfg.TLSCertFile, cert, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("first")
	l, _ := w.start(cfg)
	if n := shown(t, l).Subject.CommonName; n != "first" {
		t.Error(n)
	}
	if err := os.WriteFile(cfg.TLSCertFile, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	l.serving.filesChanged()
	if n := shown(t, l).Subject.CommonName; n != "first" {
		t.Error(n)
	}
	waitFor(t, func() bool { // repeats the write, because the watch may not exist yet
		put("second")
		return shown(t, l).Subject.CommonName == "second"
	})
}

// waitFor polls a condition for which no event exists.
func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !done(); {
		if time.Now().After(end) || !sleep(t.Context(), 300*time.Millisecond) {
			t.Fatal("the condition does not become true")
		}
	}
}
