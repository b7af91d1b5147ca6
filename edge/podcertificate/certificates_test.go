package podcertificate

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/apitest"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/eventtest"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podtest"
	"github.com/islet-edge/islet/internal/weight"
)

// A world is a cluster with a signer, and a node whose agent can be restarted, in a bubble
// of time.
type world struct {
	testing.TB
	server *apitest.Server
	path   string
	store  *store.Store
	certs  *Certificates
	stop   func()
	pods   []*v1.Pod
	uid    atomic.Value // types.UID of the Node
	ca     *x509.Certificate
	caKey  *ecdsa.PrivateKey

	mu     sync.Mutex
	poked  int
	events []string
}

func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	path := t.TempDir() + "/islet.db"
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		w := &world{TB: t, server: apitest.New(t), path: path, caKey: key,
			ca: &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}}
		w.uid.Store(types.UID("uid-of-node"))
		w.server.Put(&v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "robot", UID: "uid-of-robot"}})
		w.start()
		defer func() { w.stop() }()
		test(w)
	})
}

func TestMain(m *testing.M) { os.Exit(eventtest.Main(m, "podcertificate")) }

func (w *world) start() {
	w.Helper()
	var err error
	if w.store, err = store.Open(w.Context(), w.path, slog.New(slog.DiscardHandler)); err != nil {
		w.Fatal(err)
	}
	client := w.server.Client(w)
	w.certs = New(Config{
		Client: client, Store: w.store, Node: "n", NodeUID: func() types.UID { return w.uid.Load().(types.UID) }, Events: eventtest.Sink(w.record),
		Log:     slog.New(slog.DiscardHandler),
		Changed: func(types.UID) { w.mu.Lock(); w.poked++; w.mu.Unlock() },
	})
	if err := w.certs.Load(w.Context(), w.pods); err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.certs.Run(ctx) }()
	w.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			w.Error(err)
		}
		client.CloseConnections()
		if err := w.store.Close(); err != nil {
			w.Error(err)
		}
		w.stop = func() {}
	}
}

func (w *world) restart() {
	w.Helper()
	w.stop()
	w.start()
}

// record keeps an event as a line.
func (w *world) record(e eventtest.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e.Pod.Name+" "+e.Type+" "+e.Reason+": "+e.Message)
}

func (w *world) told() []string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.events
	w.events = nil
	return all
}

func (w *world) pokes() int {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.poked
	w.poked = 0
	return n
}

// prepare registers a pod as its worker does, and returns the duration.
func (w *world) prepare(p *v1.Pod) time.Duration {
	w.Helper()
	if !slices.Contains(w.pods, p) {
		w.pods = append(w.pods, p)
		if err := w.store.UpdatePods(w.Context(), []store.Pod{{Pod: p, Seq: int64(len(w.pods)), Source: "api"}}, nil); err != nil {
			w.Fatal(err)
		}
	}
	began := time.Now()
	if err := w.certs.Prepare(w.Context(), p); err != nil {
		w.Error(err)
	}
	return time.Since(began)
}

// certified returns a pod with a podCertificate as the second source of its volume.
func certified(name string, c v1.PodCertificateProjection) *v1.Pod {
	sources := []v1.VolumeProjection{{}, {PodCertificate: &c}}
	return podtest.New(name, podtest.UID("uid-"+name), podtest.ServiceAccount("robot"), podtest.Containers(),
		podtest.Volumes(v1.Volume{Name: "creds", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: sources}}}))
}

// open returns the only request that the signer has not answered.
func (w *world) open() *certificatesv1beta1.PodCertificateRequest {
	w.Helper()
	synctest.Wait()
	all := slices.DeleteFunc(w.server.CertificateRequests(),
		func(r *certificatesv1beta1.PodCertificateRequest) bool { return len(r.Status.Conditions) > 0 })
	if len(all) != 1 {
		w.Fatalf("%d requests are open", len(all))
	}
	return all[0]
}

// chain returns a certificate for a request's key.
func (w *world) chain(r *certificatesv1beta1.PodCertificateRequest, life time.Duration) string {
	w.Helper()
	proof, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request)
	if err == nil {
		err = proof.CheckSignature()
	}
	if err != nil {
		w.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()),
		NotBefore: time.Now(), NotAfter: time.Now().Add(life)}, w.ca, proof.PublicKey, w.caKey)
	if err != nil {
		w.Fatal(err)
	}
	return "# a comment\n" + string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Headers: map[string]string{"a": "b"}, Bytes: der}))
}

// answer sets the signer's answer.
func (w *world) answer(r *certificatesv1beta1.PodCertificateRequest, condition, chain string, life time.Duration) {
	r.Status.Conditions = []metav1.Condition{{Type: condition, Status: "True", Reason: "Because", Message: "of this"}}
	r.Status.CertificateChain = chain
	begin, end := metav1.NewTime(time.Now().Add(life/2)), metav1.NewTime(time.Now().Add(life))
	r.Status.BeginRefreshAt, r.Status.NotAfter = &begin, &end
	w.server.Put(r)
	synctest.Wait()
}

func (w *world) issue(life time.Duration) {
	w.Helper()
	r := w.open()
	w.answer(r, "Issued", w.chain(r, life), life)
}

// has returns the serial number of a pod's certificate, or the error. It checks that key and certificate
// match.
func (w *world) has(p *v1.Pod) string {
	w.Helper()
	key, chain, err := w.certs.Credentials(p, "creds", 1)
	if err != nil {
		return "error: " + err.Error()
	}
	if bytes.Contains(chain, []byte("comment")) || bytes.Contains(chain, []byte("a: b")) {
		w.Error("more than certificates:", string(chain))
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		w.Error(err)
		return ""
	}
	return pair.Leaf.SerialNumber.String()
}

func (w *world) wants(p *v1.Pod, part string) {
	w.Helper()
	if got := w.has(p); !strings.Contains(got, part) {
		w.Errorf("%s has %s, not %s", p.Name, got, part)
	}
}

// The request has the pod's parameters. The certificate is renewed in time, survives a restart and is in
// no file in plain text.
func TestLife(t *testing.T) {
	for _, keyType := range []string{"ED25519", "ECDSAP256"} {
		t.Run(keyType, func(t *testing.T) {
			inWorld(t, func(w *world) {
				seconds := int32(7200)
				p := certified("p", v1.PodCertificateProjection{SignerName: "a.b/c", KeyType: keyType,
					MaxExpirationSeconds: &seconds, UserAnnotations: map[string]string{"a.b/d": "e"}})
				if d := w.prepare(p); d != patience {
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
				w.restart() // goes on with the same request and key
				w.issue(2 * time.Hour)
				first := w.has(p)
				if w.pokes() == 0 || w.prepare(p) != 0 {
					t.Error("the pod does not hear that it has its certificate, or waits")
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
				time.Sleep(spread + time.Minute)
				w.pokes()
				w.issue(2 * time.Hour)
				if now := w.has(p); now == first || w.pokes() != 1 {
					t.Error("it was not renewed, or nobody hears of it")
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
				w.restart() // what is over requests nothing
				time.Sleep(time.Hour)
				synctest.Wait()
				if n := len(w.server.CertificateRequests()); n != 2 {
					t.Errorf("%d requests in all", n)
				}
			})
		})
	}
}

// Without a link a pod keeps its certificate, over reboots and after its expiry, which events report.
// With a link it is renewed at once.
func TestWithoutLink(t *testing.T) {
	inWorld(t, func(w *world) {
		p := certified("p", v1.PodCertificateProjection{SignerName: "a.b/c", KeyType: "ED25519"})
		w.prepare(p)
		w.issue(time.Hour)
		first := w.has(p)
		w.server.Down()
		w.restart()
		if d := w.prepare(p); d != 0 {
			t.Error("waited", d)
		}
		time.Sleep(30*time.Minute + overdue - time.Minute)
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
		w.server.Up()
		w.certs.Retry()
		w.issue(time.Hour)
		if w.has(p) == first || w.certs.States()[0].State != "fresh" {
			t.Error("not renewed", w.certs.States())
		}
	})
}

// A refusal of the signer is final, and an earlier certificate is used until it expires. An invalid
// certificate, or one for another key, counts as a failure.
func TestRefused(t *testing.T) {
	for _, tt := range []struct {
		condition string
		chain     func(w *world, r *certificatesv1beta1.PodCertificateRequest) string
		state     string
		wants     string
	}{
		{"Denied", nil, "denied", "was denied (Because): of this"},
		{"Failed", nil, "failed", "failed (Because): of this"},
		{"Issued", func(*world, *certificatesv1beta1.PodCertificateRequest) string { return "garbage" }, "failed", "has no certificate"},
		{"Issued", func(*world, *certificatesv1beta1.PodCertificateRequest) string {
			return "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
		}, "failed", `PEM block "PRIVATE KEY"`},
		{"Issued", func(w *world, r *certificatesv1beta1.PodCertificateRequest) string {
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
			time.Sleep(30*time.Minute + spread)
			answer()
			if w.has(q) != first {
				t.Error("a certificate that is valid is shown no more:", w.has(q))
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

// After a failure the request is repeated with the same key: the server does not know the pod yet, the
// service account is missing, or the request was deleted.
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
		w.server.Cut() // the watch
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

// A static pod has no service account and sends no requests.
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

// Each type of key signs its proof and has the right size.
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

// TestChainBombs: a chain that is too large when decoded is rejected before it is decoded.
func TestChainBombs(t *testing.T) {
	for name, text := range map[string]string{
		"headers": "-----BEGIN CERTIFICATE-----\n" + strings.Repeat("abc:\n", 200_000) + "\n-----END CERTIFICATE-----\n",
		"blocks":  strings.Repeat("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n", 20_000),
		"length":  "-----BEGIN CERTIFICATE-----\n" + strings.Repeat("AAAA\n", 2<<20) + "-----END CERTIFICATE-----\n",
	} {
		if _, err := chainOf(text, nil); !errors.Is(err, weight.ErrTooHeavy) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
