package podcertificate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/event"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/sorting"
)

// prepareTimeout is the maximum time that Prepare waits for a signer.
const prepareTimeout = 5 * time.Second

// A Store stores certificates across restarts. *store.Store implements it.
type Store interface {
	Certificates(ctx context.Context) ([]store.Certificate, error)
	PutCertificate(ctx context.Context, c store.Certificate) error
	RemoveCertificates(ctx context.Context, uid types.UID) error
}

// Config contains the dependencies of Certificates.
type Config struct {
	Client  *kube.Client
	Store   Store
	Node    string           // the name of this node
	NodeUID func() types.UID // returns the UID of the Node, or "" if it is unknown
	Changed func(types.UID)  // called when a certificate of the pod has changed; must not block
	Events  event.Sink
	Now     func() time.Time // clock for the expiry of certificates; the default is time.Now
	Log     *slog.Logger
}

// Certificates obtains and renews the certificates of this node's pods. Its methods are safe for concurrent
// use.
type Certificates struct {
	cfg    Config
	signal chan struct{} // capacity 1; a value means that a projection needs a goroutine

	mu      sync.Mutex
	list    map[store.CertificateKey]*projection
	pending []*projection // projections that wait for Run to start their goroutines
	loaded  map[store.CertificateKey]state
}

// New returns an object that manages no pods yet. It starts no goroutine.
func New(cfg Config) *Certificates {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Certificates{
		cfg: cfg, signal: make(chan struct{}, 1), list: map[store.CertificateKey]*projection{}, loaded: map[store.CertificateKey]state{},
	}
}

// Load restores the stored certificates of this node's pods. Call it once, before all other methods.
func (c *Certificates) Load(ctx context.Context, pods []*v1.Pod) error {
	rows, err := c.cfg.Store.Certificates(ctx)
	if err != nil {
		return err
	}
	stored := map[types.UID]bool{}
	for _, r := range rows {
		var s state
		if err := json.Unmarshal(r.State, &s); err != nil {
			c.cfg.Log.Error("a stored certificate of a pod cannot be decoded: a new one is requested", "volume", r.Volume, "error", err)
		}
		c.loaded[r.CertificateKey], stored[r.UID] = s, true
	}
	for _, p := range pods {
		if stored[p.UID] { // a pod that has ended has no row, and needs no certificate
			c.register(p)
		}
	}
	clear(c.loaded)
	return nil
}

// Run requests and renews certificates until ctx ends. It returns after all its goroutines have ended.
func (c *Certificates) Run(ctx context.Context) error {
	var list sync.WaitGroup
	defer list.Wait()
	for {
		c.mu.Lock()
		for _, p := range c.pending {
			if p.dropped {
				continue
			}
			ctx, stop := context.WithCancel(ctx)
			p.stop = stop
			list.Go(func() {
				defer stop()
				c.maintainCertificate(ctx, p)
			})
		}
		c.pending = nil
		c.mu.Unlock()
		select {
		case <-c.signal:
		case <-ctx.Done():
			return nil
		}
	}
}

// Prepare registers the pod and waits for missing certificates, at most for prepareTimeout. If a certificate is still missing after that,
// Credentials returns the reason.
func (c *Certificates) Prepare(ctx context.Context, pod *v1.Pod) error {
	waits := c.register(pod)
	if len(waits) == 0 {
		return nil
	}
	soon, stop := context.WithTimeout(ctx, prepareTimeout)
	defer stop()
	for _, w := range waits {
		select {
		case <-w:
		case <-soon.Done():
		}
	}
	return ctx.Err()
}

// register records the podCertificate sources of a pod. It returns a channel for each missing certificate.
func (c *Certificates) register(pod *v1.Pod) (waits []<-chan struct{}) {
	if source, ok := pod.Annotations[keys.ConfigSource]; ok && source != keys.SourceAPI {
		return nil // a static pod has no service account
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Projected == nil {
			continue
		}
		for n := range v.Projected.Sources {
			if want := v.Projected.Sources[n].PodCertificate; want != nil {
				waits = append(waits, c.addProjection(pod, store.CertificateKey{UID: pod.UID, Volume: v.Name, Source: n}, want)...)
			}
		}
	}
	return waits
}

func (c *Certificates) addProjection(pod *v1.Pod, k store.CertificateKey, want *v1.PodCertificateProjection) []<-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.list[k]
	if p == nil {
		p = newProjection(k, pod, want, c.loaded[k])
		c.list[k] = p
		c.pending = append(c.pending, p)
		select {
		case c.signal <- struct{}{}:
		default:
		}
	}
	if p.finalError != nil || p.Key != nil && c.cfg.Now().Before(p.NotAfter) {
		return nil
	}
	return []<-chan struct{}{p.firstResult}
}

// Credentials returns the key and the certificate chain for a source of a pod's projected volume, in PEM. It does not block.
func (c *Certificates) Credentials(pod *v1.Pod, volume string, source int) (key, chain []byte, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.list[store.CertificateKey{UID: pod.UID, Volume: volume, Source: source}]
	switch {
	case p == nil:
		return nil, nil, errors.New("podCertificate: it was not requested yet")
	case p.Key != nil && (p.finalError == nil || c.cfg.Now().Before(p.NotAfter)):
		return p.Key, p.Chain, nil
	case p.finalError != nil:
		return nil, nil, p.finalError
	case p.err != nil:
		return nil, nil, fmt.Errorf("podCertificate of signer %s: %w", p.wantedProjection.SignerName, p.err)
	case p.Request != "":
		return nil, nil, fmt.Errorf("podCertificate: signer %s has not issued PodCertificateRequest %s/%s yet",
			p.wantedProjection.SignerName, pod.Namespace, p.Request)
	}
	return nil, nil, fmt.Errorf("podCertificate of signer %s: it was not requested yet", p.wantedProjection.SignerName)
}

// Release removes a pod that was deleted or has ended.
func (c *Certificates) Release(ctx context.Context, uid types.UID) error {
	c.mu.Lock()
	stored := false
	for k, p := range c.list {
		if k.UID != uid {
			continue
		}
		stored, p.dropped = true, true
		if p.stop != nil {
			p.stop()
		}
		delete(c.list, k)
	}
	c.mu.Unlock()
	if !stored {
		return nil
	}
	return c.cfg.Store.RemoveCertificates(ctx, uid)
}

// Retry repeats failed requests. Call it when the link is up again.
func (c *Certificates) Retry() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.list {
		if p.err != nil {
			p.requestAttempt()
		}
	}
}

// A State counts the projections of a signer that are in the same state. The names of the states are from the metric
// kubelet_podcertificate_states.
type State struct {
	Signer, State string
	Count         int
}

// States returns the counts for all signers and states, sorted.
func (c *Certificates) States() (list []State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.cfg.Now()
	for _, p := range c.list {
		s := State{Signer: p.wantedProjection.SignerName, State: p.stateName(now)}
		if i := slices.IndexFunc(list, func(o State) bool { return o.Signer == s.Signer && o.State == s.State }); i >= 0 {
			list[i].Count++
			continue
		}
		s.Count = 1
		list = append(list, s)
	}
	sorting.By(list, func(a, b State) int {
		return cmp.Or(cmp.Compare(a.Signer, b.Signer), cmp.Compare(a.State, b.State))
	})
	return list
}
