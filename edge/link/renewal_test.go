package link

import (
	"crypto/x509"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/islet-edge/islet/edge/kube/kubetest"
)

// newSigning returns a timedWorld whose server approves and signs certificates for a day.
func newSigning(t *testing.T) *timedWorld {
	time.Sleep(2 * year) // the test CA must be older than the certificates
	w := newTimed(t)
	w.asked, w.life = make(chan string, 10_000), 24*time.Hour
	w.csrs, w.events = map[string]*certificatesv1.CertificateSigningRequest{}, map[string]chan watch.Event{}
	w.server.Mux.HandleFunc("POST /apis/certificates.k8s.io/v1/certificatesigningrequests", w.create)
	w.server.Mux.HandleFunc("GET /apis/certificates.k8s.io/v1/certificatesigningrequests", w.list)
	cert := w.server.CA.ServerUntil(t, time.Now(), time.Now().Add(10*year), "127.0.0.1")
	w.server.Certificate = &cert
	return w
}

// joined returns the configuration of a node whose stored pairs were signed by the given CAs, oldest first. Each pair has the given age and
// is valid for the given time from now.
func (w *timedWorld) joined(age, left time.Duration, signers ...*kubetest.CA) Config {
	cfg := w.config()
	cfg.Dial, cfg.Clock = w.line.Dial, w.machine
	pairs := pairFiles{dir: cfg.CertDir, prefix: "kubelet-client"}
	for n, ca := range signers {
		cert, key := ca.Client(w.t, "system:node:n", []string{"system:nodes"}, time.Now().Add(-age), time.Now().Add(left))
		if _, err := pairs.save(cert, key, time.Now().Add(time.Duration(n)*time.Minute)); err != nil {
			w.t.Fatal(err)
		}
	}
	w.kubeconfig(cfg.Kubeconfig, &api.AuthInfo{ClientCertificate: pairs.currentPath(), ClientKey: pairs.currentPath()})
	return cfg
}

func (w *timedWorld) current(cfg Config) string {
	target, err := os.Readlink(pairFiles{dir: cfg.CertDir, prefix: "kubelet-client"}.currentPath())
	if err != nil {
		w.t.Error(err)
	}
	return target
}

// requested returns the number of signing requests since the last call.
func (w *timedWorld) requested() int {
	n := len(w.asked)
	for range n {
		<-w.asked
	}
	return n
}

// TestRenewalsHaveAPrice checks that certificates which must be renewed as soon as they are issued are renewed at growing intervals. The
// causes are a clock that is ahead, and a signer that leaves out a name or issues certificates for another user. The node gets correct
// certificates after the causes are over, and requests no more.
func TestRenewalsHaveAPrice(t *testing.T) {
	for name, c := range map[string]struct {
		ahead     time.Duration
		nameless  bool
		bootstrap bool
	}{
		"clock ahead":       {ahead: 30 * 24 * time.Hour},
		"missing names":     {nameless: true},
		"both":              {ahead: year, nameless: true},
		"unusable identity": {bootstrap: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newSigning(t)
				var cfg Config
				if c.bootstrap { // the signer issues certificates for another user, so the node never gets an identity
					cfg = w.bootstrap()
					cfg.Dial, cfg.Clock = w.line.Dial, w.machine
					begin, end := time.Now().Add(-time.Hour), time.Now().Add(-time.Minute)
					cert, key := w.server.CA.Client(t, "system:node:n", []string{"system:nodes"}, begin, end)
					w.kubeconfig(cfg.Kubeconfig, &api.AuthInfo{ClientCertificateData: cert, ClientKeyData: key})
				} else {
					cfg = w.joined(time.Hour, 23*time.Hour, w.server.CA)
					cfg.ServerTLSBootstrap = true
				}
				w.offset.Store(int64(c.ahead))
				alter := func(cert *x509.Certificate) *kubetest.CA {
					if c.nameless {
						cert.DNSNames, cert.IPAddresses = nil, nil
					}
					if c.bootstrap {
						cert.Subject.CommonName = "system:node:m"
					}
					return nil
				}
				w.set(func() { w.alter = alter })
				l, stop := w.boot(cfg)
				defer stop()
				time.Sleep(10 * time.Minute)
				if n := w.requested(); n < 2 {
					t.Errorf("%d requests in the first minutes: the first intervals are too long", n)
				}
				time.Sleep(24 * time.Hour)
				most := 50
				if c.bootstrap {
					most = 200
				}
				if n := w.requested(); n > most {
					t.Errorf("%d requests a day", n)
				}
				w.offset.Store(0)
				w.set(func() { w.alter = nil })
				time.Sleep(4 * time.Hour) // more than a tenth of a certificate's life
				w.requested()
				if s := l.State(); s.Phase != Up {
					t.Fatalf("the link is %+v", s)
				}
				if !c.bootstrap {
					if err := shown(t, l).VerifyHostname("192.0.2.1"); err != nil {
						t.Error(err)
					}
				}
				time.Sleep(3 * time.Hour)
				if n := w.requested(); n != 0 {
					t.Errorf("%d requests after the causes were over", n)
				}
			})
		})
	}
}

// TestShortLivesWithoutRotation checks that a node that does not rotate its certificate, and whose certificates expire after minutes, gets
// each new one soon after the old one has expired.
func TestShortLivesWithoutRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSigning(t)
		w.life = 5 * time.Minute
		cfg := w.bootstrap()
		cfg.Dial, cfg.Clock, cfg.Rotate = w.line.Dial, w.machine, false
		l, stop := w.boot(cfg)
		defer stop()
		up60(t, l, time.Now(), "after the first bootstrap")
		down, longest := time.Duration(0), time.Duration(0)
		for began := time.Now(); time.Since(began) < 2*time.Hour; time.Sleep(5 * time.Second) {
			if get(t.Context(), l) == nil {
				down = 0
			}
			longest = max(longest, down)
			down += 5 * time.Second
		}
		if n := w.requested(); n < 20 || n > 30 {
			t.Errorf("%d requests", n)
		}
		if longest > time.Minute {
			t.Errorf("the node had no credentials for %s", longest)
		}
	})
}

// TestNewBootstrapKubeconfig checks that the node requests a certificate soon after the bootstrap kubeconfig was replaced, although the
// interval after unusable certificates is not over. The same kubeconfig does not end the interval.
func TestNewBootstrapKubeconfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSigning(t)
		const newToken = "123456.0123456789abcdef"
		w.server.Authenticate = func(r *http.Request) bool {
			return r.Header.Get("Authorization") == "Bearer "+newToken || w.authenticate(r)
		}
		cfg := w.bootstrap()
		cfg.Dial, cfg.Clock = w.line.Dial, w.machine
		begin, end := time.Now().Add(-time.Hour), time.Now().Add(-time.Minute)
		cert, key := w.server.CA.Client(t, "system:node:n", []string{"system:nodes"}, begin, end)
		w.kubeconfig(cfg.Kubeconfig, &api.AuthInfo{ClientCertificateData: cert, ClientKeyData: key})
		w.alter = func(cert *x509.Certificate) *kubetest.CA {
			cert.Subject.CommonName = "system:node:m"
			return nil
		}
		l, stop := w.boot(cfg)
		defer stop()
		time.Sleep(3 * time.Hour)
		w.requested()
		<-w.asked
		time.Sleep(time.Minute)
		w.set(func() { w.alter = nil })
		w.kubeconfig(cfg.BootstrapKubeconfig, &api.AuthInfo{Token: token})
		l.identity.filesChanged()
		time.Sleep(time.Minute)
		if n := w.requested(); n != 0 {
			t.Errorf("%d requests with the same kubeconfig", n)
		}
		w.kubeconfig(cfg.BootstrapKubeconfig, &api.AuthInfo{Token: newToken})
		l.identity.filesChanged()
		time.Sleep(time.Minute)
		if s := l.State(); s.Phase != Up || w.requested() != 1 {
			t.Errorf("the link is %+v after the new kubeconfig", s)
		}
	})
}

// TestBootstrapByProxy checks that a bootstrap kubeconfig with a proxy ends the interval after a bootstrap only if it has changed.
func TestBootstrapByProxy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bootstrap")
	proxy := "http://192.0.2.2:3128"
	write := func(token string) {
		t.Helper()
		c := api.NewConfig()
		c.Clusters["c"] = &api.Cluster{Server: "https://192.0.2.1:6443", ProxyURL: proxy}
		c.AuthInfos["u"] = &api.AuthInfo{Token: token}
		c.Contexts["x"], c.CurrentContext = &api.Context{Cluster: "c", AuthInfo: "u"}, "x"
		if err := clientcmd.WriteToFile(*c, path); err != nil {
			t.Fatal(err)
		}
	}
	write("old")
	with, err := readRest(path)
	if err != nil || with.Proxy == nil {
		t.Fatal(with, err)
	}
	i := &identity{link: &Link{cfg: Config{BootstrapKubeconfig: path}}, bootstrappedBy: with}
	i.bootstraps.Succeeded(time.Hour)
	if i.untilBootstrap() == 0 {
		t.Error("the same kubeconfig ends the interval")
	}
	write("new")
	if i.untilBootstrap() != 0 {
		t.Error("a new kubeconfig does not end the interval")
	}
	i.bootstraps.Succeeded(time.Hour)
	proxy = "http://192.0.2.3:3128"
	write("old")
	if i.untilBootstrap() != 0 {
		t.Error("a new proxy does not end the interval")
	}

	// The same rule applies to the kubeconfig in use: only a change causes a new connection.
	i = newIdentity(&Link{cfg: Config{Kubeconfig: path, CertDir: t.TempDir()}, clock: &clock{machine: time.Now}})
	for n, want := range []bool{true, false, true, true, false} { // whether the credentials have changed
		switch n {
		case 2:
			proxy = "http://192.0.2.4:3128"
		case 3:
			proxy = ""
		}
		write("old")
		before := i.config
		if !i.load() || (len(i.changed) == 1) != want || (i.config != before) != want {
			t.Errorf("read %d: changed %v, %+v", n, len(i.changed) == 1, i.missingReason)
		}
		if want {
			<-i.changed
		}
	}
}

// TestChangingNames checks that a node whose addresses change often requests serving certificates at growing intervals. The certificate for
// the first new address is requested at once.
func TestChangingNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSigning(t)
		cfg := w.joined(time.Hour, 23*time.Hour, w.server.CA)
		cfg.ServerTLSBootstrap = true
		l, stop := w.boot(cfg)
		defer stop()
		time.Sleep(time.Minute)
		if n := w.requested(); n != 1 {
			t.Fatalf("%d requests", n)
		}
		for n := range 60 {
			address := []string{"192.0.2.2", "192.0.2.3"}[n%2]
			l.SetAddresses([]string{"n"}, []netip.Addr{netip.MustParseAddr(address)})
			time.Sleep(time.Minute)
			if err := shown(t, l).VerifyHostname(address); n == 0 && err != nil {
				t.Error(err)
			}
		}
		if n := w.requested(); n > 10 {
			t.Errorf("%d requests an hour", n)
		}
		time.Sleep(maxMoveInterval)
		if err := shown(t, l).VerifyHostname("192.0.2.3"); err != nil {
			t.Error(err)
		}
	})
}

// TestRotationIsSaved checks that a certificate that cannot be saved is saved soon after the disk has been repaired.
func TestRotationIsSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSigning(t)
		cfg := w.joined(100*time.Hour, 10*time.Hour, w.server.CA) // due at once
		before := w.current(cfg)
		time.Sleep(time.Minute) // the files of the pairs have different names
		broken := filepath.Join(cfg.CertDir, "kubelet-client-updated.pem")
		if err := os.MkdirAll(filepath.Join(broken, "x"), 0o700); err != nil {
			t.Fatal(err)
		}
		l, stop := w.boot(cfg)
		defer stop()
		time.Sleep(150 * time.Minute)
		if failed, _ := l.Failures(); failed == 0 || w.current(cfg) != before {
			t.Fatalf("%d failures, current is %s", failed, w.current(cfg))
		}
		if err := os.RemoveAll(broken); err != nil {
			t.Fatal(err)
		}
		time.Sleep(maxAttempt + time.Minute)
		if w.current(cfg) == before {
			t.Error("the new certificate is not used")
		}
	})
}

// TestRotationIsProven checks that the node uses its old certificate until the API server has accepted the new one, for each reason why the
// server may reject it. The link stays up. The certificate is rotated when the reason is over.
func TestRotationIsProven(t *testing.T) {
	for name, c := range map[string]struct {
		alter  func(w *timedWorld, cert *x509.Certificate) *kubetest.CA
		refuse int // the status of the answers to the new certificate
		most   int // maximum number of requests in three hours
	}{
		"another CA": {most: 9, alter: func(w *timedWorld, _ *x509.Certificate) *kubetest.CA { return kubetest.NewCA(w.t) }},
		"another user": {most: 9, alter: func(_ *timedWorld, cert *x509.Certificate) *kubetest.CA {
			cert.Subject.CommonName = "system:node:m"
			return nil
		}},
		"no node": {most: 9, alter: func(_ *timedWorld, cert *x509.Certificate) *kubetest.CA {
			cert.Subject.Organization = nil
			return nil
		}},
		"another usage": {most: 9, alter: func(_ *timedWorld, cert *x509.Certificate) *kubetest.CA {
			cert.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
			return nil
		}},
		"valid later": {most: 1, alter: func(_ *timedWorld, cert *x509.Certificate) *kubetest.CA {
			cert.NotBefore = cert.NotBefore.Add(4 * time.Hour)
			return nil
		}},
		"an error": {most: 1, refuse: http.StatusInternalServerError},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newSigning(t)
				cfg := w.joined(100*time.Hour, 10*time.Hour, w.server.CA) // due at once
				before := w.current(cfg)
				old, err := loadPair(before)
				if err != nil {
					t.Fatal(err)
				}
				var refuse atomic.Bool
				refuse.Store(c.refuse != 0)
				handler := w.server.Config.Handler
				w.server.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					if refuse.Load() && len(r.TLS.PeerCertificates) > 0 && !r.TLS.PeerCertificates[0].Equal(old.cert.Leaf) {
						rw.WriteHeader(c.refuse)
						return
					}
					handler.ServeHTTP(rw, r)
				})
				if c.alter != nil {
					w.alter = func(cert *x509.Certificate) *kubetest.CA { return c.alter(w, cert) }
				}
				l, stop := w.boot(cfg)
				defer stop()
				up60(t, l, time.Now(), "with the old certificate")
				for range 3 * 6 {
					time.Sleep(10 * time.Minute)
					if err := get(t.Context(), l); err != nil || l.State().Phase != Up || w.current(cfg) != before {
						t.Fatalf("the old certificate is not used: %v, %+v, %s", err, l.State(), w.current(cfg))
					}
				}
				if failed, _ := l.Failures(); failed == 0 {
					t.Error("no failure was counted")
				}
				if n := w.requested(); n < 1 || n > c.most {
					t.Errorf("%d requests", n)
				}
				refuse.Store(false)
				w.set(func() { w.alter = nil })
				time.Sleep(3 * time.Hour)
				if until, _ := l.Expiry(); !until.After(old.cert.Leaf.NotAfter) || w.current(cfg) == before {
					t.Errorf("not rotated: valid until %s", until)
				}
				if s := l.State(); s.Phase != Up || get(t.Context(), l) != nil {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// TestOtherPair checks that a node whose certificate is rejected uses its other stored pair, also after a restart.
func TestOtherPair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSigning(t)
		cfg := w.joined(time.Hour, 23*time.Hour, w.server.CA, kubetest.NewCA(t))
		bad := w.current(cfg)
		for range 2 {
			l, stop := w.boot(cfg)
			up60(t, l, time.Now(), "with the other pair")
			if w.current(cfg) == bad {
				t.Error("the rejected pair stays in use")
			}
			stop()
		}
	})
}

// TestNoPairIsAccepted checks that a node tries its other pair seldom if the server rejects both, and that it uses each pair that the
// server accepts later.
func TestNoPairIsAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSigning(t)
		cfg := w.joined(time.Hour, 23*time.Hour, w.server.CA, w.server.CA)
		second := w.current(cfg)
		current, err := loadPair(second)
		if err != nil {
			t.Fatal(err)
		}
		var tries atomic.Int64 // with the pair that is not in use
		var accepted atomic.Int64
		w.server.Authenticate = func(r *http.Request) bool {
			isCurrent := r.TLS.PeerCertificates[0].Equal(current.cert.Leaf)
			if !isCurrent {
				tries.Add(1)
			}
			return accepted.Load() == 1 && !isCurrent || accepted.Load() == 2 && isCurrent
		}
		l, stop := w.boot(cfg)
		defer stop()
		time.Sleep(3 * time.Hour)
		if s := l.State(); s.Reason != ReasonUnauthorized {
			t.Errorf("%+v", s)
		}
		if n := tries.Load(); n < 3 || n > 30 {
			t.Errorf("the other pair was tried %d times", n)
		}
		for pair := range 2 {
			accepted.Store(int64(pair) + 1)
			w.line.CloseConnections()
			_ = get(t.Context(), l)
			time.Sleep(2 * afterDenial)
			if s := l.State(); s.Phase != Up || (w.current(cfg) == second) != (pair == 1) {
				t.Errorf("pair %d: %+v, %s", pair, s, w.current(cfg))
			}
		}
	})
}
