package podcertificate

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/inputweight"
	"github.com/islet-edge/islet/internal/keys"
)

// TestLife checks the request for a certificate, which must contain the pod's parameters. The certificate must be renewed in time, survive
// a restart, and not be stored in plain text.
func TestLife(t *testing.T) {
	for _, keyType := range []string{"ED25519", "ECDSAP256"} {
		t.Run(keyType, func(t *testing.T) {
			inWorld(t, func(w *world) {
				seconds := int32(7200)
				p := certified("p", v1.PodCertificateProjection{SignerName: "a.b/c", KeyType: keyType,
					MaxExpirationSeconds: &seconds, UserAnnotations: map[string]string{"a.b/d": "e"}})
				if d := w.prepare(p); d != prepareTimeout {
					t.Error("waited", d)
				}
				w.wants(p, "has not issued PodCertificateRequest default/req-")
				r := w.open()
				if s := r.Spec; s.SignerName != "a.b/c" || s.PodName != "p" || s.PodUID != p.UID ||
					s.ServiceAccountName != "robot" || s.ServiceAccountUID != "uid-of-robot" ||
					s.NodeName != "n" || s.NodeUID != "uid-of-node" || *s.MaxExpirationSeconds != 7200 ||
					s.UnverifiedUserAnnotations["a.b/d"] != "e" || r.OwnerReferences[0].UID != p.UID {
					t.Errorf("%+v", r)
				}
				w.restart() // the agent continues with the same request and key
				w.issue(2 * time.Hour)
				first := w.has(p)
				if w.pokes() == 0 || w.prepare(p) != 0 {
					t.Error("Changed was not called for the certificate, or Prepare waits")
				}
				key, _, _ := w.certs.Credentials(p, "creds", 1)
				secret := bytes.Split(key, []byte("\n"))[1]
				if err := w.store.SetMeta(w.Context(), "checkpoint", "now"); err != nil {
					t.Error(err)
				}
				for _, file := range []string{w.path, w.path + "-wal"} {
					if data, err := os.ReadFile(file); err == nil && bytes.Contains(data, secret) {
						t.Error(file, "has the key")
					}
				}
				w.restart()
				if w.has(p) != first {
					t.Error("after a restart it has", w.has(p))
				}
				before := w.server.Total()
				time.Sleep(time.Hour - time.Minute)
				synctest.Wait()
				if n := w.server.Total() - before; n != 0 {
					t.Errorf("asked %d times while there was nothing to do", n)
				}
				time.Sleep(renewalSpread + time.Minute)
				w.pokes()
				w.issue(2 * time.Hour)
				if now := w.has(p); now == first || w.pokes() != 1 {
					t.Error("the certificate was not renewed, or Changed was not called")
				}
				if all := w.told(); len(all) != 0 {
					t.Error(all)
				}
				if err := w.certs.Release(w.Context(), p.UID); err != nil {
					t.Error(err)
				}
				if all, err := w.store.Certificates(w.Context()); err != nil || len(all) != 0 {
					t.Error("left:", all, err)
				}
				w.wants(p, "error: ")
				w.restart() // a final projection sends no request
				time.Sleep(time.Hour)
				synctest.Wait()
				if n := len(w.server.CertificateRequests()); n != 2 {
					t.Errorf("%d requests in all", n)
				}
			})
		})
	}
}

// TestWithoutLink checks that a pod keeps its certificate while the API server is unreachable, also after a restart and after the expiry
// of the certificate. Events report the overdue renewal and the expiry. The certificate is renewed immediately when the link is up.
func TestWithoutLink(t *testing.T) {
	inWorld(t, func(w *world) {
		p := certified("p", v1.PodCertificateProjection{SignerName: "a.b/c", KeyType: "ED25519"})
		w.prepare(p)
		w.issue(time.Hour)
		first := w.has(p)
		w.server.Disconnect()
		w.restart()
		if d := w.prepare(p); d != 0 {
			t.Error("waited", d)
		}
		time.Sleep(30*time.Minute + overdueAfter - time.Minute)
		if all := w.told(); len(all) != 0 || w.has(p) != first {
			t.Error(all, w.has(p))
		}
		time.Sleep(5 * time.Minute)
		if all := w.told(); len(all) != 1 || !strings.Contains(all[0], "p Warning CertificateOverdueForRefresh") ||
			w.certs.States()[0] != (State{"a.b/c", "overdue_for_refresh", 1}) {
			t.Error(all, w.certs.States())
		}
		time.Sleep(30 * time.Minute)
		if all := w.told(); len(all) != 1 || !strings.Contains(all[0], "CertificateExpired") || w.has(p) != first ||
			w.certs.States()[0].State != "expired" {
			t.Error(all, w.has(p), w.certs.States())
		}
		w.server.Reconnect()
		w.certs.Retry()
		w.issue(time.Hour)
		if w.has(p) == first || w.certs.States()[0].State != "fresh" {
			t.Error("not renewed", w.certs.States())
		}
	})
}

// TestRefused checks that a denial by the signer is final. An earlier certificate is used until it expires. An invalid certificate, or a
// certificate for another key, counts as a failure.
func TestRefused(t *testing.T) {
	for _, tt := range []struct {
		condition string
		chain     func(w *world, r *certificatesv1.PodCertificateRequest) string
		state     string
		wants     string
	}{
		{"Denied", nil, "denied", "was denied (Because): of this"},
		{"Failed", nil, "failed", "failed (Because): of this"},
		{"Issued", func(*world, *certificatesv1.PodCertificateRequest) string { return "garbage" }, "failed", "has no certificate"},
		{"Issued", func(*world, *certificatesv1.PodCertificateRequest) string {
			return "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
		}, "failed", `PEM block "PRIVATE KEY"`},
		{"Issued", func(w *world, r *certificatesv1.PodCertificateRequest) string {
			other, _ := newKey("ED25519")
			r = r.DeepCopy()
			r.Spec.StubPKCS10Request, _ = proofOf(other)
			return w.chain(r, time.Hour)
		}, "failed", "does not belong to the requested key"},
	} {
		inWorld(t, func(w *world) {
			answer := func() {
				r, chain := w.open(), ""
				if tt.chain != nil {
					chain = tt.chain(w, r)
				}
				w.answer(r, tt.condition, chain, time.Hour)
			}
			p, q := certified("p", v1.PodCertificateProjection{SignerName: "a.b/c", KeyType: "ED25519"}),
				certified("q", v1.PodCertificateProjection{SignerName: "a.b/c", KeyType: "ED25519"})
			w.prepare(p)
			answer()
			w.wants(p, tt.wants)
			if all := w.told(); len(all) != 1 || !strings.Contains(all[0], tt.wants) {
				t.Error(all)
			}
			w.prepare(q)
			w.issue(time.Hour)
			first := w.has(q)
			time.Sleep(30*time.Minute + renewalSpread)
			answer()
			if w.has(q) != first {
				t.Error("a valid certificate is no longer returned:", w.has(q))
			}
			time.Sleep(30 * time.Minute)
			w.wants(q, tt.wants)
			if n := len(w.server.CertificateRequests()); n != 3 {
				t.Errorf("%d requests", n)
			}
			if s := w.certs.States(); len(s) != 1 || s[0] != (State{"a.b/c", tt.state, 2}) {
				t.Error(s)
			}
		})
	}
}

// TestFaults checks that the request is repeated with the same key after each of three failures: the API server does not know the pod yet,
// the service account is missing, and the request was deleted.
func TestFaults(t *testing.T) {
	inWorld(t, func(w *world) {
		p := certified("p", v1.PodCertificateProjection{SignerName: "a.b/c", KeyType: "ED25519"})
		var forbid sync.Map
		fault := func(rw http.ResponseWriter, r *http.Request) bool {
			if _, yes := forbid.Load(r.Method); !yes || !strings.Contains(r.URL.Path, "podcertificaterequests") {
				return false
			}
			rw.Header().Set("Content-Type", "application/json")
			rw.WriteHeader(http.StatusForbidden)
			fmt.Fprint(rw, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"reason":"Forbidden","message":"no such pod"}`)
			return true
		}
		w.server.Fault.Store(&fault)
		forbid.Store("POST", true)
		w.uid.Store(types.UID(""))
		w.prepare(p)
		w.wants(p, "no Node with this name")
		w.uid.Store(types.UID("uid-of-node"))
		time.Sleep(time.Minute)
		w.wants(p, "no such pod")
		writes := rows(w)
		time.Sleep(10 * time.Minute)
		if again := rows(w); !bytes.Equal(writes, again) {
			t.Error("each attempt makes a new key")
		}
		forbid.Delete("POST")
		time.Sleep(retryMax * 2)
		r := w.open()
		w.server.Remove(r)
		time.Sleep(time.Minute)
		if again := w.open(); again.Name != r.Name {
			t.Error("another name:", again.Name)
		}
		w.server.CloseConnections() // ends the watch
		time.Sleep(time.Minute)
		w.issue(time.Hour)
		w.has(p)
		w.wants(p, w.has(p))
		if strings.HasPrefix(w.has(p), "error") {
			t.Error(w.has(p))
		}
	})
}

func rows(w *world) []byte {
	all, err := w.store.Certificates(w.Context())
	if err != nil || len(all) != 1 {
		w.Error(all, err)
		return nil
	}
	return all[0].State
}

// TestStaticPods checks that a static pod, which has no service account, sends no requests.
func TestStaticPods(t *testing.T) {
	inWorld(t, func(w *world) {
		p := certified("p", v1.PodCertificateProjection{SignerName: "a.b/c", KeyType: "ED25519"})
		p.Annotations = map[string]string{keys.ConfigSource: "file"}
		before := w.server.Total()
		if d := w.prepare(p); d != 0 || w.server.Total() != before {
			t.Error(d)
		}
		w.wants(p, "error: ")
	})
}

// TestKeyTypes checks that each type of key signs its proof and has the required size.
func TestKeyTypes(t *testing.T) {
	for keyType, bits := range map[string]int{"ED25519": 0, "ECDSAP256": 256, "ECDSAP384": 384, "ECDSAP521": 521,
		"RSA3072": 3072, "RSA4096": 4096} {
		key, err := newKey(keyType)
		if err != nil {
			t.Fatal(keyType, err)
		}
		proof, err := proofOf(key)
		if err != nil {
			t.Fatal(keyType, err)
		}
		r, err := x509.ParseCertificateRequest(proof)
		if err == nil {
			err = r.CheckSignature()
		}
		if err != nil || r.Subject.String() != "" {
			t.Fatal(keyType, r, err)
		}
		got := 0
		switch public := r.PublicKey.(type) {
		case *rsa.PublicKey:
			got = public.N.BitLen()
		case *ecdsa.PublicKey:
			got = public.Curve.Params().BitSize
		}
		if got != bits {
			t.Errorf("%s has %d bits", keyType, got)
		}
	}
	if _, err := newKey("DSA"); err == nil || !strings.Contains(err.Error(), `"DSA"`) {
		t.Error(err)
	}
}

// TestChainBombs checks that a certificate chain is rejected before it is decoded if it would be too large.
func TestChainBombs(t *testing.T) {
	for name, text := range map[string]string{
		"headers": "-----BEGIN CERTIFICATE-----\n" + strings.Repeat("abc:\n", 200_000) + "\n-----END CERTIFICATE-----\n",
		"blocks":  strings.Repeat("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n", 20_000),
		"length":  "-----BEGIN CERTIFICATE-----\n" + strings.Repeat("AAAA\n", 2<<20) + "-----END CERTIFICATE-----\n",
	} {
		if _, err := chainOf(text, nil); !errors.Is(err, inputweight.ErrTooHeavy) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFormerServers checks that a pod gets a certificate from an API server that serves v1beta1. The certificate must be renewed after an
// update of the server to a version that serves only v1.
func TestFormerServers(t *testing.T) {
	inWorld(t, func(w *world) {
		w.server.Former.Store(true)
		p := certified("p", v1.PodCertificateProjection{SignerName: "a.b/c", KeyType: "ED25519"})
		w.prepare(p)
		w.issue(2 * time.Hour)
		first := w.has(p)
		if _, err := strconv.ParseUint(first, 10, 64); err != nil {
			t.Fatal(first)
		}
		w.server.Former.Store(false)
		w.server.CloseConnections()
		time.Sleep(time.Hour + 2*renewalSpread)
		w.issue(2 * time.Hour)
		if again := w.has(p); again == first || strings.HasPrefix(again, "error") {
			t.Errorf("not renewed: %s", again)
		}
	})
}

// TestWrongClock checks that a certificate is renewed at growing intervals if it is due at once, because the clock of the node is ahead.
// After the clock is right, the certificate is renewed in time.
func TestWrongClock(t *testing.T) {
	const life = 24 * time.Hour // renewed after 12 hours
	inWorld(t, func(w *world) {
		var ahead atomic.Int64
		w.certs.cfg.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		issued := 0
		pass := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end) && issued < 100; time.Sleep(10 * time.Second) {
				for len(w.unanswered()) > 0 && issued < 100 {
					w.issue(life)
					issued++
				}
			}
		}
		p := certified("p", v1.PodCertificateProjection{SignerName: "a.b/c", KeyType: "ED25519"})
		w.prepare(p)
		pass(life / 4)
		if issued != 1 {
			t.Fatalf("%d certificates while the clock is right", issued)
		}
		ahead.Store(int64(20 * life))
		pass(checkEvery + 10*time.Minute)
		if issued < 3 {
			t.Errorf("%d certificates: the first intervals are too long", issued)
		}
		pass(life)
		if issued > 20 {
			t.Fatalf("%d certificates", issued)
		}
		ahead.Store(0)
		issued = 0
		pass(life / 4)
		if issued != 0 {
			t.Errorf("%d certificates after the clock is right", issued)
		}
		pass(life/2 + 2*checkEvery)
		if issued != 1 || strings.HasPrefix(w.has(p), "error") {
			t.Errorf("%d certificates, and the pod has %s", issued, w.has(p))
		}
	})
}
