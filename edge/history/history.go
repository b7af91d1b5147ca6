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
	// metaHistory is the key in the store under which the marker is stored as JSON.
	metaHistory = "history"
	// storeEvery is the interval between two writes of the marker while no pods are stored. An older marker is still a valid lower bound,
	// and each write wears out flash memory.
	storeEvery = 10 * time.Minute
)

// Meta stores small values. *store.Store implements it.
type Meta interface {
	Meta(ctx context.Context, key string) (value string, found bool, err error)
	SetMeta(ctx context.Context, key, value string) error
}

// Config contains the dependencies of a History.
type Config struct {
	Client *kube.Client
	Node   string // name of this node and of its Lease
	Meta   Meta
	// AddMetaValue is (*store.Store).AddMetaValue. In each transaction that stores pods, the store calls the registered function and writes
	// its result under the registered key. If AddMetaValue is nil, the marker is stored only every storeEvery.
	AddMetaValue func(key string, value func() string)
	Log          *slog.Logger
}

// A marker is the position in the cluster's history that this node has seen. A server with an older state has lost changes.
type marker struct {
	Epoch   int       `json:"epoch"`
	Version uint64    `json:"version,omitempty"` // version of the Lease after its last renewal; 0 if unknown
	Renewed time.Time `json:"renewed,omitzero"`  // renewTime of the last renewal
	Pods    uint64    `json:"pods,omitempty"`    // newest version of a pod or of a list of pods; 0 if unknown
}

// A History detects a change of the API server's history. It is safe for concurrent use.
type History struct {
	Config
	due chan struct{} // capacity 1: Run must store the marker

	leaseMu sync.Mutex // held during a read of the Lease

	mu          sync.Mutex
	last        marker
	stored      marker
	storedAt    time.Time // time of the last write of stored
	podsStored  bool      // pods were stored since the last renewal
	doubt       bool
	subscribers []chan struct{} // the channels returned by WatchEpoch
}

// New loads the stored marker. The first VerifyServer reads the Lease.
func New(ctx context.Context, c Config) (*History, error) {
	if c.Client == nil || c.Node == "" || c.Meta == nil || c.Log == nil {
		return nil, errors.New("history: a part of the configuration is missing")
	}
	h := &History{Config: c, due: make(chan struct{}, 1), doubt: true}
	text, found, err := c.Meta.Meta(ctx, metaHistory)
	if err != nil {
		return nil, err
	}
	if found {
		if err := json.Unmarshal([]byte(text), &h.last); err != nil {
			c.Log.Error("the stored marker of the cluster's history cannot be decoded: the history starts over", "error", err)
			h.last = marker{}
		}
		h.stored = h.last
	}
	if c.AddMetaValue != nil {
		c.AddMetaValue(metaHistory, h.markerForPods)
	}
	return h, nil
}

// markerForPods returns the marker for the transaction that stores pods. The next renewal of the Lease is then stored, too, because the
// Lease reveals only backups that are older than the last stored renewal.
func (h *History) markerForPods() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.podsStored = true
	b, err := json.Marshal(h.last)
	if err != nil { // cannot happen: the fields are numbers and a valid time
		h.Log.Error("the marker of the cluster's history is not stored with pods", "error", err)
		b, _ = json.Marshal(h.stored)
	}
	return string(b)
}

// RecordVersion records the version of a pod, or of a list of pods. Call it before storing the content.
func (h *History) RecordVersion(version string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last.Pods = max(h.last.Pods, versionOf(version))
}

// WatchEpoch returns a new channel that receives a value when a new epoch begins. The channel has capacity 1, so several epochs may cause
// only one value.
func (h *History) WatchEpoch() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := make(chan struct{}, 1)
	h.subscribers = append(h.subscribers, c)
	return c
}

// Epoch returns the number of detected changes of the history. It never decreases.
func (h *History) Epoch() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last.Epoch
}

// LastRenewal returns the renewTime of the last acknowledged renewal of the Lease. After a start of the agent, it is the last stored one.
// The result is zero if there is none.
func (h *History) LastRenewal() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last.Renewed
}

// SuspectServer makes the next VerifyServer read the Lease. Call it when a connection has ended or a request has failed, because the next
// answer may come from another server.
func (h *History) SuspectServer() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.doubt = true
}

// VerifyServer reads the Lease if SuspectServer was called since the last read. Call it before renewing the Lease, and before accepting a
// list from the server. If it returns an error, the next VerifyServer reads the Lease again.
func (h *History) VerifyServer(ctx context.Context) error {
	h.leaseMu.Lock()
	defer h.leaseMu.Unlock()
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
		h.RecordMissingLease()
		return nil
	case err != nil:
		h.SuspectServer()
		return fmt.Errorf("read the lease of this node: %w", err)
	}
	// The Lease is compared with the last renewal before the read, because a renewal during the read may be newer than the Lease that was
	// read. If a renewal during the read has begun a new epoch, the change is already detected.
	h.mu.Lock()
	isDetected := h.last.Epoch != last.Epoch
	h.mu.Unlock()
	if why := last.contradictionWith(lease); why != "" && !isDetected {
		h.beginEpoch(versionOf(lease.ResourceVersion), renewedAt(lease), why)
	}
	return nil
}

// contradictionWith compares a Lease with the marker. It returns the reason why the Lease is older than the marker, or "" if it is not
// older.
func (m marker) contradictionWith(lease *coordinationv1.Lease) string {
	version, renewed := versionOf(lease.ResourceVersion), renewedAt(lease)
	switch {
	case version != 0 && version < m.Version:
		return fmt.Sprintf("its lease of this node has version %d, but version %d was acknowledged", version, m.Version)
	case version > m.Version && m.Version != 0:
		// The Lease was written later. A renewal whose answer was lost has an earlier renewTime if the clock of this machine was set back.
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

// versionOf parses a resource version. It returns 0 if s is not a number. Versions of the same resource can be compared
// (https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions).
func versionOf(s string) uint64 {
	v, _ := strconv.ParseUint(s, 10, 64)
	return v
}

// RecordRenewal records that the server acknowledged a renewal of the Lease, with the new resourceVersion and renewTime. It does not wait
// for the disk, because the next renewal may be due before a slow disk has answered.
func (h *History) RecordRenewal(version string, at time.Time) {
	v := versionOf(version)
	at = at.Truncate(time.Microsecond) // the precision of a Lease
	h.mu.Lock()
	before := h.last
	if v != 0 && v < before.Version {
		h.mu.Unlock()
		h.beginEpoch(v, at, fmt.Sprintf("a renewal of the lease has version %d, after version %d", v, before.Version))
		return
	}
	h.last.Version, h.last.Renewed = v, at
	if h.podsStored || h.stored.Version == 0 || time.Since(h.storedAt) >= storeEvery {
		notifyChannel(h.due)
	}
	h.podsStored = false
	h.mu.Unlock()
}

// RecordMissingLease records that the server has no Lease of this node. If the server has acknowledged a Lease before, a new epoch begins.
func (h *History) RecordMissingLease() {
	h.mu.Lock()
	hadLease := h.last.Version != 0 || !h.last.Renewed.IsZero()
	h.mu.Unlock()
	if hadLease {
		h.beginEpoch(0, time.Time{}, "it has no lease of this node, although it has acknowledged one")
	}
}

// CompareLists reports whether a list of pods is older than the known pods. A list is older if its version is lower than the version of the
// earlier list, or lower than the newest version that RecordVersion has recorded. An older list begins a new epoch.
func (h *History) CompareLists(before, now string) (older bool) {
	h.mu.Lock()
	b, n := max(versionOf(before), h.last.Pods), versionOf(now)
	h.mu.Unlock()
	if n == 0 || n >= b {
		return false
	}
	h.beginEpoch(0, time.Time{}, fmt.Sprintf("its list of pods has version %d, after version %d was seen", n, b))
	return true
}

// Resume compares the current version of the server with the given version. Call it before a watch of this node's pods continues from that
// version. If the server has not reached the version, the watch would receive no events until the server reaches it, and would never
// receive the earlier changes (https://github.com/kubernetes/kubernetes/issues/131115). The Lease does not reveal a backup that is newer
// than the last renewal. Resume therefore lists the pods of this node whose name is the name of the node. Nearly always there is no such
// pod. The version of the list is the server's current version.
func (h *History) Resume(ctx context.Context, version string) error {
	o := metav1.ListOptions{FieldSelector: "spec.nodeName=" + h.Node + ",metadata.name=" + h.Node}
	none, err := kube.List[v1.PodList](ctx, h.Client, "", o)
	if apierrors.IsForbidden(err) { // a policy of the cluster forbids the request; only the Lease decides
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the current version of the pods of this node: %w", err)
	}
	h.CompareLists(version, none.ResourceVersion)
	return nil
}

// beginEpoch begins a new epoch and signals all channels of WatchEpoch. Run stores the epoch. A transaction that stores pods also stores
// it. If the epoch is not stored, the next start of the agent detects the change again.
func (h *History) beginEpoch(version uint64, renewed time.Time, why string) {
	h.mu.Lock()
	h.last = marker{Epoch: h.last.Epoch + 1, Version: version, Renewed: renewed}
	epoch := h.last.Epoch
	for _, c := range h.subscribers {
		notifyChannel(c)
	}
	h.mu.Unlock()
	h.Log.Warn("the API server lost data that it had acknowledged, as after a restore from a backup: all objects are read again",
		"because", why, "epoch", epoch)
	notifyChannel(h.due)
}

func notifyChannel(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// store writes the marker if the marker has changed. Only Run calls store.
func (h *History) store(ctx context.Context) {
	h.mu.Lock()
	now, before := h.last, h.stored
	h.storedAt = time.Now()
	h.mu.Unlock()
	if now == before {
		return
	}
	data, err := json.Marshal(now)
	if err == nil {
		err = h.Meta.SetMeta(ctx, metaHistory, string(data))
	}
	switch {
	case err == nil:
		h.mu.Lock()
		h.stored = now
		h.mu.Unlock()
	case errors.Is(err, context.Canceled): // at the end of its context, Run stores the marker again
	case now.Epoch != before.Epoch:
		h.Log.Error("the new epoch of the cluster's history is not stored: the next start of the agent detects the change again",
			"error", err)
	default:
		h.Log.Debug("the last renewal of the lease is not stored", "error", err)
	}
}

// Run stores the marker when it is due, and at the end of ctx. At the next start, the Lease is compared with the last stored renewal.
func (h *History) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		select {
		case <-h.due:
			h.store(ctx)
		case <-ctx.Done():
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	h.store(ctx)
	return nil
}
