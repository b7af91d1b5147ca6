package link

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/islet-edge/islet/edge/kube/kubetest"
)

// A world is a control plane that signs certificates, and the files of one node.
type world struct {
	t      *testing.T
	server *kubetest.Server
	dir    string
	meta   *memory
	asked  chan string // name of each new signing request
	reads  chan string // credential of each read of a signing request: a bearer token, or empty

	mu   sync.Mutex
	now  func() time.Time // the server's clock
	life time.Duration    // validity of the signed certificates
	deny bool
	hold bool // whether signing requests stay unapproved, except those of the user only
	only string
	// alter changes a certificate before it is signed. It returns the signer, or nil for the server's CA. alter may be nil.
	alter  func(*x509.Certificate) *kubetest.CA
	who    map[string]int
	csrs   map[string]*certificatesv1.CertificateSigningRequest
	events map[string]chan watch.Event
}

const token = "abcdef.0123456789abcdef"

func newWorld(t *testing.T) *world {
	w := &world{
		t: t, dir: t.TempDir(), meta: &memory{values: map[string]string{}}, asked: make(chan string, 100), reads: make(chan string, 100),
		now: time.Now, life: time.Hour, who: map[string]int{},
		csrs: map[string]*certificatesv1.CertificateSigningRequest{}, events: map[string]chan watch.Event{},
	}
	w.server = kubetest.New(t, certificatesv1.AddToScheme, corev1.AddToScheme)
	w.server.Authenticate = w.authenticate
	w.server.Mux.HandleFunc("POST /apis/certificates.k8s.io/v1/certificatesigningrequests", w.create)
	w.server.Mux.HandleFunc("GET /apis/certificates.k8s.io/v1/certificatesigningrequests", w.list)
	w.server.Mux.HandleFunc("GET /api/v1/nodes/n", func(rw http.ResponseWriter, r *http.Request) {
		w.server.Write(rw, r, 200, &corev1.Node{})
	})
	return w
}

func (w *world) authenticate(r *http.Request) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.Header.Get("Authorization") == "Bearer "+token {
		w.who["bootstrap"]++
		return true
	}
	name, groups, ok := w.server.Subject(r, w.now())
	if ok && slices.Contains(groups, "system:nodes") {
		w.who[name]++
		return true
	}
	return false
}

func (w *world) create(rw http.ResponseWriter, r *http.Request) {
	obj, err := w.server.Read(r)
	if err != nil {
		w.t.Error(err)
		return
	}
	csr := obj.(*certificatesv1.CertificateSigningRequest)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.csrs[csr.Name] != nil {
		w.server.WriteError(rw, r, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "certificatesigningrequests"}, csr.Name))
		return
	}
	csr.UID, csr.ResourceVersion = "u", "1"
	w.csrs[csr.Name] = csr
	w.events[csr.Name] = make(chan watch.Event, 10)
	w.asked <- csr.Name
	w.server.Write(rw, r, http.StatusCreated, csr)
	if !w.hold || w.only != "" && bearer(r) == w.only {
		w.approve(csr.Name)
	}
}

// approve signs or denies a request. The caller holds mu.
func (w *world) approve(name string) {
	csr := w.csrs[name].DeepCopy()
	if w.deny {
		csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied,
			Reason: "No", Message: "not you"}}
	} else {
		block, _ := pem.Decode(csr.Spec.Request)
		req, err := x509.ParseCertificateRequest(block.Bytes)
		if err != nil {
			w.t.Error(err)
			return
		}
		usage := x509.ExtKeyUsageClientAuth
		if slices.Contains(csr.Spec.Usages, certificatesv1.UsageServerAuth) {
			usage = x509.ExtKeyUsageServerAuth
		}
		signer, template := w.server.CA, &x509.Certificate{
			Subject: req.Subject, DNSNames: req.DNSNames, IPAddresses: req.IPAddresses,
			NotBefore: w.now().Add(-time.Minute), NotAfter: w.now().Add(w.life),
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
		}
		if w.alter != nil {
			signer = cmp.Or(w.alter(template), signer)
		}
		csr.Status.Certificate = signer.Sign(w.t, template, req.PublicKey)
		csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved}}
	}
	w.csrs[name] = csr
	w.events[name] <- watch.Event{Type: watch.Modified, Object: csr}
}

func (w *world) list(rw http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("fieldSelector")[len("metadata.name="):]
	w.mu.Lock()
	events := w.events[name]
	list := &certificatesv1.CertificateSigningRequestList{}
	list.ResourceVersion = "1"
	if csr := w.csrs[name]; csr != nil {
		list.Items = append(list.Items, *csr)
	}
	w.mu.Unlock()
	if r.URL.Query().Get("watch") == "" {
		select {
		case w.reads <- bearer(r):
		default: // the test does not receive from reads
		}
		w.server.Write(rw, r, 200, list)
		return
	}
	w.server.Watch(rw, r, events)
}

func bearer(r *http.Request) string {
	return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
}

// set changes the behaviour of the server.
func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

func (w *world) seen(who string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.who[who]
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

func (w *world) config() Config {
	return Config{
		Kubeconfig: w.path("kubelet.conf"), CertDir: w.path("pki"), NodeName: "n",
		Hostname: "n", NodeIPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
		Rotate: true, Meta: w.meta, Log: slog.New(slog.NewTextHandler(w.t.Output(), nil)),
	}
}

// bootstrap writes a bootstrap kubeconfig. It returns a configuration that uses this file.
func (w *world) bootstrap() Config {
	cfg := w.config()
	cfg.BootstrapKubeconfig = w.path("bootstrap.conf")
	w.kubeconfig(cfg.BootstrapKubeconfig, &api.AuthInfo{Token: token})
	return cfg
}

func (w *world) kubeconfig(path string, user *api.AuthInfo) {
	w.t.Helper()
	c := api.NewConfig()
	c.Clusters["c"] = &api.Cluster{Server: w.server.URL, CertificateAuthorityData: w.server.CA.PEM}
	c.AuthInfos["u"] = user
	c.Contexts["x"] = &api.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "x"
	text, err := clientcmd.Write(*c)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// start runs a link. The link ends when stop is called or the test ends.
func (w *world) start(cfg Config) (*Link, func()) {
	w.t.Helper()
	l, err := New(w.t.Context(), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
		l.client.CloseConnections()
	})
	w.t.Cleanup(stop)
	return l, stop
}

// await waits until the state of the link meets a condition, and returns the state.
func await(t *testing.T, l *Link, want func(State) bool) State {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		s, moved := l.states.get()
		if want(s) {
			return s
		}
		select {
		case <-moved:
		case <-ctx.Done():
			t.Fatalf("the state stays %+v", s)
		}
	}
}

func up(s State) bool { return s.Phase == Up }

// A memory is an implementation of Meta in memory.
type memory struct {
	mu     sync.Mutex
	values map[string]string
	writes int
}

func (m *memory) Meta(_ context.Context, key string) (string, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.values[key]
	return v, ok, nil
}

func (m *memory) SetMeta(_ context.Context, key, value string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values[key] = value
	m.writes++
	return nil
}

func (m *memory) SetMetaOrRetry(ctx context.Context, key, value string) error {
	return m.SetMeta(ctx, key, value)
}
