package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/edge/kube"
)

const (
	// metaHistory is the key under which the store has the marker, as JSON.
	metaHistory = "history"
	// storeEvery bounds how often a marker is written that only moved on: an older one is
	// a lower bound still, and flash wears.
	storeEvery = 10 * time.Minute
)

// Meta keeps small values. *store.Store is one.
type Meta interface {
	Meta(ctx context.Context, key string) (value string, found bool, err error)
	SetMeta(ctx context.Context, key, value string) error
}

// Config is what a History needs.
type Config struct {
	Client *kube.Client
	Node   string // name of this node, and so of its Lease
	Meta   Meta
	// Ride makes the store write a value under a key whenever it stores pods, in the same
	// transaction: (*store.Store).Ride. nil: the marker is only stored as often as storeEvery.
	Ride func(key string, value func() string)
	Log  *slog.Logger
}

// A marker is what a later history must have.
type marker struct {
	Epoch   int       `json:"epoch"`
	Version uint64    `json:"version,omitempty"` // of the Lease when it was last renewed; 0: not known
	Renewed time.Time `json:"renewed,omitzero"`  // what that renewal wrote
	Pods    uint64    `json:"pods,omitempty"`    // newest version of a pod, or of a list of pods, that was seen; 0: not known
}

// A History is safe for concurrent use.
type History struct {
	Config

	settling sync.Mutex // one look at the server at a time

	mu      sync.Mutex
	last    marker
	stored  marker
	when    time.Time // stored was written
	ridden  bool      // pods were stored since the last renewal
	doubt   bool
	waiting []chan struct{}
}

// New loads what the last run of the agent knew. The first use is in doubt.
func New(ctx context.Context, c Config) (*History, error) {
	if c.Client == nil || c.Node == "" || c.Meta == nil || c.Log == nil {
		return nil, errors.New("history: a part of the configuration is missing")
	}
	h := &History{Config: c, doubt: true}
	text, found, err := c.Meta.Meta(ctx, metaHistory)
	if err != nil {
		return nil, err
	}
	if found {
		if err := json.Unmarshal([]byte(text), &h.last); err != nil {
			c.Log.Error("what is stored of the cluster's history cannot be read: it begins anew", "error", err)
			h.last = marker{}
		}
		h.stored = h.last
	}
	if c.Ride != nil {
		c.Ride(metaHistory, h.ride)
	}
	return h, nil
}

// ride returns the marker for the transaction that stores pods. A backup may be younger than the
// last renewal, which the Lease cannot tell: so the next renewal is stored at once.
func (h *History) ride() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ridden = true
	b, err := json.Marshal(h.last)
	if err != nil { // cannot be: numbers, and a time that was read or is the clock's
		h.Log.Error("the marker of the cluster's history is not stored with pods", "error", err)
		b, _ = json.Marshal(h.stored)
	}
	return string(b)
}

// Seen takes the version of a pod, or of a list of pods, before what it says is stored.
func (h *History) Seen(version string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last.Pods = max(h.last.Pods, versionOf(version))
}

// Rewritten returns a channel, of its own for each caller, that says when the history
// was found to be another one. Signals coalesce.
func (h *History) Rewritten() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := make(chan struct{}, 1)
	h.waiting = append(h.waiting, c)
	return c
}

// Epoch counts the histories that this node has seen. It never goes down.
func (h *History) Epoch() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last.Epoch
}

// Doubt says that the server may have been exchanged: a connection ended, or a request
// failed. The next Settle looks.
func (h *History) Doubt() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.doubt = true
}

// Settle removes a doubt, if there is one, by a look at the Lease. It must come before
// the Lease is renewed after a doubt, and before a list of the server is believed. On an
// error the doubt stays.
func (h *History) Settle(ctx context.Context) error {
	h.settling.Lock()
	defer h.settling.Unlock()
	h.mu.Lock()
	doubt, last := h.doubt, h.last
	h.doubt = false
	h.mu.Unlock()
	if !doubt || last.Version == 0 && last.Renewed.IsZero() {
		return nil
	}
	lease, err := kube.Get[coordinationv1.Lease](ctx, h.Client, v1.NamespaceNodeLease, h.Node)
	switch {
	case apierrors.IsNotFound(err):
		h.Missing(ctx)
		return nil
	case err != nil:
		h.Doubt()
		return fmt.Errorf("read the lease of this node: %w", err)
	}
	h.mu.Lock()
	last = h.last // a renewal may have come between
	h.mu.Unlock()
	if why := last.contradicts(lease); why != "" {
		h.rewritten(ctx, versionOf(lease.ResourceVersion), renewedAt(lease), why)
	}
	return nil
}

// contradicts says why a Lease cannot be of a history that has the marker.
func (m marker) contradicts(lease *coordinationv1.Lease) string {
	version, renewed := versionOf(lease.ResourceVersion), renewedAt(lease)
	switch {
	case version != 0 && version < m.Version:
		return fmt.Sprintf("its lease of this node has version %d, after version %d was acknowledged", version, m.Version)
	case renewed.Before(m.Renewed):
		return fmt.Sprintf("its lease of this node lacks the renewal of %s, which was acknowledged", m.Renewed.UTC().Format(time.RFC3339))
	}
	return ""
}

func renewedAt(lease *coordinationv1.Lease) time.Time {
	if lease.Spec.RenewTime == nil {
		return time.Time{}
	}
	return lease.Spec.RenewTime.Time
}

// versionOf is 0 for what is no number. Versions of one resource can be compared.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions
func versionOf(s string) uint64 {
	v, _ := strconv.ParseUint(s, 10, 64)
	return v
}

// Renewed says that the server acknowledged a renewal of the Lease, which has a version
// now and says this time.
func (h *History) Renewed(ctx context.Context, version string, at time.Time) {
	v := versionOf(version)
	at = at.Truncate(time.Microsecond) // as a Lease has it
	h.mu.Lock()
	before := h.last
	if v != 0 && v < before.Version {
		h.mu.Unlock()
		h.rewritten(ctx, v, at, fmt.Sprintf("a renewal of the lease has version %d, after version %d", v, before.Version))
		return
	}
	h.last.Version, h.last.Renewed = v, at
	due := h.ridden || h.stored.Version == 0 || time.Since(h.when) >= storeEvery
	h.ridden = false
	h.mu.Unlock()
	if due {
		if err := h.store(ctx); err != nil {
			h.Log.Debug("the last renewal of the lease is not stored", "error", err)
		}
	}
}

// Missing says that the server has no Lease of this node, although it acknowledged one.
func (h *History) Missing(ctx context.Context) {
	h.mu.Lock()
	known := h.last.Version != 0 || !h.last.Renewed.IsZero()
	h.mu.Unlock()
	if known {
		h.rewritten(ctx, 0, time.Time{}, "it has no lease of this node, which was acknowledged")
	}
}

// Listed compares the version of a list of pods with that of one before, and with the newest that
// an earlier run of the agent has stored. It reports whether the list is older, and then that the
// history is another.
func (h *History) Listed(ctx context.Context, before, now string) (older bool) {
	h.mu.Lock()
	b, n := max(versionOf(before), h.last.Pods), versionOf(now)
	h.mu.Unlock()
	if n == 0 || n >= b {
		return false
	}
	h.rewritten(ctx, 0, time.Time{}, fmt.Sprintf("its list of pods has version %d, after version %d was seen", n, b))
	return true
}

// Resume must come before a watch of this node's pods goes on from a version. A watch from
// one that the server has not reached hears nothing until it has, and never what came
// before. Of a backup that is younger than the last renewal the Lease says nothing. The
// question is a list that has hardly ever a pod in it, whose version is that of now.
// https://github.com/kubernetes/kubernetes/issues/131115
func (h *History) Resume(ctx context.Context, version string) error {
	o := metav1.ListOptions{FieldSelector: "spec.nodeName=" + h.Node + ",metadata.name=" + h.Node}
	none, err := kube.List[v1.PodList](ctx, h.Client, "", o)
	if apierrors.IsForbidden(err) { // a policy of the cluster's own: the Lease must do
		return nil
	}
	if err != nil {
		return fmt.Errorf("ask for the version of the pods of this node: %w", err)
	}
	h.Listed(ctx, version, none.ResourceVersion)
	return nil
}

// rewritten begins an epoch. Everybody hears of it, also if it cannot be stored.
func (h *History) rewritten(ctx context.Context, version uint64, renewed time.Time, why string) {
	h.mu.Lock()
	h.last = marker{Epoch: h.last.Epoch + 1, Version: version, Renewed: renewed}
	epoch := h.last.Epoch
	for _, c := range h.waiting {
		select {
		case c <- struct{}{}:
		default:
		}
	}
	h.mu.Unlock()
	h.Log.Warn("the API server no longer has what it acknowledged, such as after a restore from a backup: everything is read anew", "because", why, "epoch", epoch)
	if err := h.store(ctx); err != nil {
		h.Log.Error("that the cluster has another history is not stored: the next start of the agent finds it anew", "error", err)
	}
}

// store writes the marker.
func (h *History) store(ctx context.Context) error {
	h.mu.Lock()
	now := h.last
	h.when = time.Now()
	h.mu.Unlock()
	data, err := json.Marshal(now)
	if err != nil {
		return fmt.Errorf("encode the history: %w", err)
	}
	if err := h.Meta.SetMeta(ctx, metaHistory, string(data)); err != nil {
		return err
	}
	h.mu.Lock()
	h.stored = now
	h.mu.Unlock()
	return nil
}

// Run stores the last renewal when ctx ends: a restart compares with that.
func (h *History) Run(ctx context.Context) error {
	<-ctx.Done()
	h.mu.Lock()
	same := h.stored == h.last
	h.mu.Unlock()
	if same {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := h.store(ctx); err != nil {
		h.Log.Debug("the last renewal of the lease is not stored", "error", err)
	}
	return nil
}
