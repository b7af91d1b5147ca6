package podcertificate

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/apitest"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/eventtest"
	"github.com/islet-edge/islet/internal/podtest"
	"github.com/islet-edge/islet/runtime/mounts/mountstest"
)

// A world is an API server with a signer, and a node in a synctest bubble. The node's agent can be restarted.
type world struct {
	testing.TB
	server *apitest.Server
	path   string
	store  *store.Store
	certs  *Certificates
	stop   func()
	pods   []*v1.Pod
	uid    atomic.Value // types.UID of the Node object
	ca     *x509.Certificate
	caKey  *ecdsa.PrivateKey

	mu     sync.Mutex
	poked  int
	events []string
}

func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	inWorldAt(t, t.TempDir()+"/islet.db", test)
}

// inWorldAt is inWorld with the database at a path.
func inWorldAt(t *testing.T, path string, test func(w *world)) {
	t.Helper()
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

func TestMain(m *testing.M) {
	os.Exit(mountstest.MainIfRoot(func() int { return eventtest.Main(m, "podcertificate") }))
}

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

// record stores an event as a line of text.
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

// prepare registers a pod as its worker does. It returns the time that Prepare has taken.
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

// unanswered returns the requests that the signer has not answered.
func (w *world) unanswered() []*certificatesv1.PodCertificateRequest {
	synctest.Wait()
	return slices.DeleteFunc(w.server.CertificateRequests(),
		func(r *certificatesv1.PodCertificateRequest) bool { return len(r.Status.Conditions) > 0 })
}

// open returns the only request that the signer has not answered.
func (w *world) open() *certificatesv1.PodCertificateRequest {
	w.Helper()
	all := w.unanswered()
	if len(all) != 1 {
		w.Fatalf("%d requests are open", len(all))
	}
	return all[0]
}

// chain returns a certificate for the key of a request.
func (w *world) chain(r *certificatesv1.PodCertificateRequest, life time.Duration) string {
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

// answer sets the signer's response to a request.
func (w *world) answer(r *certificatesv1.PodCertificateRequest, condition, chain string, life time.Duration) {
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

// has returns the serial number of a pod's certificate, or the error. It checks that the key matches the certificate.
func (w *world) has(p *v1.Pod) string {
	w.Helper()
	key, chain, err := w.certs.Credentials(p, "creds", 1)
	if err != nil {
		return "error: " + err.Error()
	}
	if bytes.Contains(chain, []byte("comment")) || bytes.Contains(chain, []byte("a: b")) {
		w.Error("more than certificates in the chain:", string(chain))
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
