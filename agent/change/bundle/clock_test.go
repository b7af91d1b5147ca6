package bundle

// All calls of time.Sleep in this file are in synctest bubbles, whose clock advances at once.

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/islet-edge/islet/agent/change/bundle/feed"
	"github.com/islet-edge/islet/edge/link"
	"github.com/islet-edge/islet/internal/download"
	"github.com/islet-edge/islet/internal/retry"
)

// A tlsServer is an https server with a certificate that is valid for 60 days.
type tlsServer struct {
	*httptest.Server
	trust *x509.CertPool
}

func (w *world) newTLSServer(from time.Time, h http.HandlerFunc) *tlsServer {
	w.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	w.must(err)
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "office"}, NotBefore: from,
		NotAfter: from.AddDate(0, 0, 60), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	w.must(err)
	cert, err = x509.ParseCertificate(der)
	w.must(err)
	s := &tlsServer{httptest.NewUnstartedServer(h), x509.NewCertPool()}
	s.trust.AddCert(cert)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	s.StartTLS()
	w.Cleanup(s.Close)
	return s
}

// newClient returns the client of package download with the server's certificate as an authority.
func (s *tlsServer) newClient(now func() time.Time) func() *http.Client {
	return func() *http.Client {
		c := download.NewClient(now)
		c.Transport.(*http.Transport).TLSClientConfig.RootCAs = s.trust
		return c
	}
}

// A safeMeta is a Store that several goroutines may use.
type safeMeta struct {
	sync.Mutex
	*world
}

func (m *safeMeta) Meta(ctx context.Context, key string) (string, bool, error) {
	m.Lock()
	defer m.Unlock()
	return m.world.Meta(ctx, key)
}

func (m *safeMeta) SetMeta(ctx context.Context, key, value string) error {
	m.Lock()
	defer m.Unlock()
	return m.world.SetMeta(ctx, key, value)
}

// TestUnsetClock checks a node without an API server whose clock shows 1970. As soon as it uses a bundle, it accepts the valid certificates
// of the servers for bundles and reports, also after a reboot. A bundle that other keys have signed does not change that. A certificate
// that had expired when the bundle was signed is rejected. After islet clock reset, the bundle in use does not bring the time back.
func TestUnsetClock(t *testing.T) {
	w := newWorld(t)
	one, two := w.bundle(1, nil), w.bundle(2, second("more"))
	key := w.key
	w.key = ed25519.NewKeyFromSeed([]byte(strings.Repeat("x", ed25519.SeedSize)))
	foreign := w.bundle(9, nil)
	w.key = key
	valid := w.newTLSServer(w.clock.AddDate(0, 0, -10), func(out http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			_, _ = io.Copy(io.Discard, r.Body)
			return
		}
		http.ServeFile(out, r, two)
	})
	expired := w.newTLSServer(w.clock.AddDate(0, 0, -80), valid.Config.Handler.ServeHTTP)
	var l *link.Link
	boot := func(s *tlsServer) (*Node, *reporter) {
		var err error
		l, err = link.New(t.Context(), link.Config{NodeName: "a", CertDir: t.TempDir(), Meta: &safeMeta{world: w},
			Clock: func() time.Time { return time.Unix(1000, 0) }, Log: slog.New(slog.DiscardHandler)})
		w.must(err)
		n := w.open(nil, Remote{NewClient: s.newClient(l.Now)})
		n.c.Now = l.Now
		n.c.RecordSigned = l.RecordSigned
		return n, &reporter{Node: n, url: s.URL, client: s.newClient(l.Now)(),
			again: retry.Backoff{FirstWindow: time.Hour, SecondWindow: time.Hour, MaxWindow: time.Hour}}
	}
	check := func(what string, s *tlsServer, trusted bool) {
		t.Helper()
		n, r := boot(s)
		b, err := apply(n, s.URL+"/kiosk.tar", true)
		invalid := x509.CertificateInvalidError{}
		if trusted && (err != nil || b.Number != 2) || !trusted && (!errors.As(err, &invalid) || invalid.Reason != x509.Expired) {
			t.Errorf("%s: %+v, %v", what, b, err)
		}
		if trusted {
			_, err = n.Revert(t.Context())
			w.must(err)
		}
		wait := r.send(t.Context())
		if s, err := n.Status(); err != nil || (wait == 0) != trusted || (s.Report.Problem == "") != trusted {
			t.Errorf("%s: a report: %+v, %v", what, s.Report, err)
		}
	}
	check("nothing was verified", valid, false)
	n, _ := boot(valid)
	if _, err := apply(n, foreign, false); err == nil {
		t.Error("a bundle of others was accepted")
	}
	check("a bundle of others", valid, false)
	n, _ = boot(valid)
	if _, err := apply(n, one, false); err != nil {
		t.Fatal(err)
	}
	keep(n)
	check("a bundle was verified", valid, true)
	check("again", valid, true)
	check("an expired certificate", expired, false)
	w.must(l.ResetClock(t.Context()))
	n, _ = boot(valid)
	if b, err := apply(n, one, false); err != nil || !b.InUse {
		t.Errorf("the bundle in use: %+v, %v", b, err)
	}
	check("reset", valid, false)
}

// TestSignedAhead checks that a bundle of a signer whose clock is years ahead, also one that fails, does not make the node refuse later
// bundles. The node cannot notice a wrong time while its own clock is not synchronized: then it accepts them after islet clock reset.
func TestSignedAhead(t *testing.T) {
	build := newWorld(t)
	year := build.clock
	build.clock = year.AddDate(10, 0, 0)
	wrong := build.bundle(2, replace("bundle.yaml", "expires: 2027-01-31T00:00:00Z", ""))
	build.clock = year
	one := build.bundle(1, nil)
	build.clock = year.AddDate(0, 0, 2)
	three, lab := build.bundle(3, second("more")), build.bundle(1, replace("bundle.yaml", "name: kiosk", "name: lab"))
	for name, c := range map[string]struct {
		next          string
		fails, stick  bool
		free          bool // the clock is not synchronized
		unset, lostDB bool
	}{
		"kept":                  {next: three},
		"failed":                {next: three, fails: true},
		"a stick":               {next: three, stick: true},
		"another name, a stick": {next: lab, stick: true},
		"not synchronized":      {next: three, free: true},
		"unset":                 {next: three, unset: true},
		"unset, a new database": {next: three, unset: true, lostDB: true},
	} {
		w := newWorld(t)
		w.synced = !c.free && !c.unset
		n := w.boot(nil)
		try := func(file string) (err error) {
			if c.stick {
				_, _, err = n.ApplyNewest(t.Context(), offers(file))
			} else {
				_, err = apply(n, file, false)
			}
			return err
		}
		w.must(try(one))
		keep(n)
		if c.unset {
			w.clock = time.Unix(1000, 0)
		}
		w.must(try(wrong))
		if c.fails {
			_, err := n.Revert(t.Context())
			w.must(err)
		} else {
			keep(n)
		}
		w.clock = year.AddDate(0, 0, 3)
		if c.unset || c.free {
			if err := try(c.next); err == nil || !strings.Contains(err.Error(), "expires: ") {
				t.Errorf("%s: before the reset: %v", name, err)
			}
			if c.lostDB {
				clear(w.meta)
			}
			w.must(n.ResetClock(t.Context()))
		}
		n = w.boot(nil)
		if err := try(c.next); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if at := n.now().Signed; at.After(w.clock) {
			t.Errorf("%s: the latest signature is of %s", name, at)
		}
	}
}

// TestStaleClock checks a board whose clock shows the time of its last shutdown, weeks ago: the latest signature is not forgotten for it,
// so no older bundle with another name on a stick replaces a later one.
func TestStaleClock(t *testing.T) {
	w := newWorld(t)
	now := w.clock
	one := w.bundle(1, nil)
	w.clock = now.AddDate(0, 0, -10)
	lab := w.bundle(1, replace("bundle.yaml", "name: kiosk", "name: lab"))
	w.clock = now.AddDate(0, 0, -30)
	n := w.boot(nil)
	if _, err := apply(n, one, false); err != nil {
		t.Fatal(err)
	}
	keep(n)
	for _, w.clock = range []time.Time{w.clock, now} {
		_, _, err := w.boot(nil).ApplyNewest(t.Context(), offers(lab))
		if err == nil || !strings.Contains(err.Error(), "signed earlier") {
			t.Errorf("at %s: %v", w.clock, err)
		}
	}
}

// TestSignedOnce checks that the time of a bundle is recorded when its trial begins, and not again while a person, a stick or a source
// offers it again: during the trial, when it is kept or was reverted, and after a reboot. Otherwise islet clock reset would not last.
func TestSignedOnce(t *testing.T) {
	w := newWorld(t)
	one, two := w.bundle(1, nil), w.bundle(2, second("more"))
	recorded := 0
	var n *Node
	boot := func() {
		n = w.boot(nil)
		n.c.RecordSigned = func(_ context.Context, at time.Time) {
			recorded++
			if !at.Equal(w.clock.Add(-time.Hour)) {
				t.Errorf("recorded %s", at)
			}
		}
	}
	check := func(what, file string, want int) {
		t.Helper()
		for range 2 {
			before := n.now()
			_, _, _ = n.ApplyNewest(t.Context(), offers(file))
			_, _ = n.ApplyFollowed(t.Context(), file, feed.Seen{})
			seen := feed.Seen{}
			_, _ = n.apply(t.Context(), request{from: file, followed: true, own: before, seen: &seen}, func(string, int64, int64) {})
			if n.now().Trial != before.Trial {
				t.Errorf("%s: a trial has begun", what)
			}
			if recorded != want {
				t.Errorf("%s: recorded %d times, want %d", what, recorded, want)
			}
			boot()
		}
	}
	use := func(file string) {
		t.Helper()
		_, err := apply(n, file, false)
		w.must(err)
	}
	boot()
	use(one)
	check("on trial", one, 1)
	keep(n)
	check("kept", one, 1)
	use(one)
	check("a person again", one, 1)
	use(two)
	check("another", two, 2)
	_, err := n.Revert(t.Context())
	w.must(err)
	check("reverted", two, 2)
	check("in use again", one, 2)
}

// TestClockAhead sets the machine's clock ahead by ten years. A bundle in force that has expired by that clock stays in force, and a
// running trial continues. A new bundle that has expired by that clock waits until the clock is right: it does not count as failed, and a
// person, a stick and a followed source can then start it.
func TestClockAhead(t *testing.T) {
	for _, how := range []string{"a person", "a stick", "a source"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, s := newWorld(t), &webSite{}
				var ahead atomic.Int64
				one, two := w.bundle(1, nil), w.bundle(2, second("more"))
				boot := func() (*Node, func()) {
					n := w.open(nil, Remote{Source: followed, Every: time.Hour,
						NewClient: func() *http.Client { return &http.Client{Transport: s} }})
					n.c.Now = func() time.Time { return w.clock.Add(time.Duration(ahead.Load())) }
					return n, start(n)
				}
				n, stop := boot()
				_, err := apply(n, one, false)
				w.must(err)
				time.Sleep(time.Second)
				stop()
				ahead.Store(int64(10 * 365 * 24 * time.Hour))
				n, stop = boot()
				time.Sleep(time.Second)
				if s, err := n.Status(); err != nil || s.Trial == nil || !slices.Equal(w.names(), []string{"web"}) {
					t.Errorf("a trial ended: %+v, %v, pods %v", s, err, w.names())
				}
				time.Sleep(time.Minute)
				stop()
				n, stop = boot()
				time.Sleep(time.Second)
				try := func() (err error) {
					switch how {
					case "a person":
						_, err = apply(n, two, false)
					case "a stick":
						_, _, err = n.ApplyNewest(context.Background(), offers(two))
					default:
						s.serve(two)
						time.Sleep(30 * time.Hour)
						if status, _ := n.Status(); status.Source.Problem != "" {
							err = errors.New(status.Source.Problem)
						}
					}
					return err
				}
				if err := try(); err == nil || !strings.Contains(err.Error(), "expires: ") {
					t.Errorf("an expired bundle: %v", err)
				}
				if s, err := n.Status(); err != nil || s.Current == nil || s.Current.Number != 1 || s.Trial != nil || len(s.Failed) > 0 ||
					!slices.Equal(w.names(), []string{"web"}) {
					t.Errorf("the clock is ahead: %+v, %v, pods %v", s, err, w.names())
				}
				ahead.Store(0)
				if err := try(); err != nil {
					t.Errorf("the clock is right: %v", err)
				}
				time.Sleep(time.Minute)
				if s, err := n.Status(); err != nil || s.Current == nil || s.Current.Number != 2 {
					t.Errorf("the clock is right: %+v, %v", s, err)
				}
				stop()
			})
		})
	}
}
