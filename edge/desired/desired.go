package desired

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/demand"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/sorting"
)

// Sources of pods. The names are the values of a kubelet's annotation kubernetes.io/config.source. The source Local contains the pods that
// users have created with islet apply. The source Bundle contains the pods of the signed bundle that the node runs (islet bundle apply).
const (
	File  = keys.SourceFile
	HTTP  = keys.SourceHTTP
	API   = keys.SourceAPI
	Local = keys.SourceLocal

	Bundle = keys.SourceBundle
)

var (
	// ErrNotFound is the error of Delete for an unknown UID.
	ErrNotFound = errors.New("not found")
	// ErrForeign is returned for a change of a pod that belongs to another source. After such a change, that source would create the pod
	// again.
	ErrForeign = errors.New("it belongs to another source")
)

// A Pod is a pod that this node runs or ends.
type Pod struct {
	Pod         *v1.Pod // must not be modified
	Source      string
	Origin      string        // the file or URL; used in messages
	Deleting    bool          // the pod is ending; call Forget when its resources are gone
	Grace       time.Duration // grace period, if Deleting
	Lives       int           // number of times that the pod has ended and started again under its UID
	Predecessor types.UID     // UID of an older pod with the same name that must be forgotten before this pod starts
	Version     uint64        // value of Desired.Version at the last change of the pod
}

// A SourcePod is a pod as its source lists it: running or ending.
type SourcePod struct {
	Pod    *v1.Pod // its UID is set
	Origin string  // the file or URL; used in messages
	Ending *Ending // nil if the pod must run
}

// An Ending contains the settings for the end of a pod.
type Ending struct {
	Grace  time.Duration // grace period of all its containers
	Forced bool          // the deletion is forced: the source does not wait for the end of the pod
}

// A RemovedPod identifies a pod that its source no longer has.
type RemovedPod struct {
	UID    types.UID
	Ending *Ending // nil if the grace period in the manifest applies
}

// A Problem is the reason why a source cannot be read, or why one of its pods cannot run.
type Problem struct {
	Source  string
	Origin  string // the file or URL
	Field   string // path in the manifest, if the problem is about a field
	Message string
}

// A Store stores the rows. *store.Store implements it.
type Store interface {
	Pods(ctx context.Context) ([]store.Pod, error)
	// UpdatePods durably writes either all rows or none.
	UpdatePods(ctx context.Context, put []store.Pod, remove []types.UID) error
}

// Config contains the dependencies of a Desired.
type Config struct {
	Store Store
	Poke  func(types.UID) // called for each changed UID, without a lock; must not block
	// If Hold is true, pods that are missing in a call of Set do not end. The method HeldPods returns these pods. Hold is set during the
	// trial of a new version or configuration of islet. If the new version does not find a pod because of a fault, the pod must survive. A
	// pod that was removed on purpose runs until the agent starts without Hold. A held pod even starts if it was waiting for the end of
	// another pod with its name, or for the end of its own former instance.
	Hold bool
	Log  *slog.Logger
}

// A Desired merges the pods of all sources. It is safe for concurrent use.
type Desired struct {
	Config

	changing sync.Mutex // held during a commit, from reading the rows to publishing the new rows
	rows     rows

	waitingMu sync.Mutex
	waiting   []*change // edits that wait for a commit

	mu               sync.RWMutex // protects the published view; never held during I/O
	pods             map[types.UID]Pod
	replaced         map[types.UID]bool // see IsReplaced
	version          uint64
	deliveredSources map[string]bool
	problems         map[string][]Problem    // problems that each source reported
	blocked          map[string][]blockedPod // by source
	keptPods         map[string][]types.UID

	restarts struct{ static, fromAPI int }
}

// New loads the stored pods. Until a source has called Set, its stored pods are kept.
func New(c Config) (*Desired, error) {
	stored, err := c.Store.Pods(context.Background())
	if err != nil {
		return nil, err
	}
	d := &Desired{
		Config: c, rows: rows{}, blocked: map[string][]blockedPod{},
		deliveredSources: map[string]bool{Local: true}, problems: map[string][]Problem{}, keptPods: map[string][]types.UID{},
	}
	for _, p := range stored {
		setPriority(p.Source, p.Pod)
		d.rows[p.Pod.UID] = p
	}
	d.publish(d.rows, d.blocked)
	return d, nil
}

// setPriority sets the priority of a static pod. Older versions of islet stored static pods without a priority. The stored pod can be in
// use for a long time, because its manifest cannot be read again without a network.
func setPriority(source string, pod *v1.Pod) {
	if source != API {
		demand.SetPriority(pod)
	}
}

// Get returns the pod with a UID.
func (d *Desired) Get(uid types.UID) (Pod, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	p, ok := d.pods[uid]
	return p, ok
}

// IsReplaced reports whether it is certain that the API server does not wait for a deleting pod to end: the server has another pod with the
// same name, or it wants the pod to run again. The server has only one pod with a name at a time, so a stored pod proves this without a new
// list.
func (d *Desired) IsReplaced(uid types.UID) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.replaced[uid]
}

// List returns all pods, sorted by namespace, name and UID.
func (d *Desired) List() []Pod {
	d.mu.RLock()
	list := slices.Collect(maps.Values(d.pods))
	d.mu.RUnlock()
	sorting.By(list, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(a.Pod.Namespace, b.Pod.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name), cmp.Compare(a.Pod.UID, b.Pod.UID))
	})
	return list
}

// ForEach calls f for all pods in an unspecified order. It does not copy the list, so f must be fast and must
// not call methods of d.
func (d *Desired) ForEach(f func(Pod)) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, p := range d.pods {
		f(p)
	}
}

// Version returns a number that increases with each change of a pod.
func (d *Desired) Version() uint64 {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.version
}

// HasReported reports whether a source has delivered its pods since the agent started. Before that, a running pod of the source must not be
// treated as an orphan.
func (d *Desired) HasReported(source string) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.deliveredSources[source]
}

// HeldPods returns the UIDs of the pods that their source no longer lists and that run only because Hold is set.
func (d *Desired) HeldPods() (list []types.UID) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, held := range d.keptPods {
		for _, uid := range held {
			if p, ok := d.pods[uid]; ok && !p.Deleting { // a deleting pod does not run because of Hold
				list = append(list, uid)
			}
		}
	}
	return list
}

// Restarted returns how many pods have ended and started again under the same UID since New. A pod starts again if it is added again while
// it is ending.
func (d *Desired) Restarted() (static, fromAPI int) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.restarts.static, d.restarts.fromAPI
}

// Problems returns all problems, sorted by source and origin.
func (d *Desired) Problems() []Problem {
	d.mu.RLock()
	list := slices.Concat(slices.Collect(maps.Values(d.problems))...)
	list = append(list, problemsOf(d.blocked)...)
	d.mu.RUnlock()
	sorting.By(list, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(a.Source, b.Source), cmp.Compare(a.Origin, b.Origin),
			cmp.Compare(a.Field, b.Field), cmp.Compare(a.Message, b.Message),
		)
	})
	return list
}

// publish makes new rows visible to readers. It returns the UIDs of the pods that have changed.
func (d *Desired) publish(next rows, blocked map[string][]blockedPod) (changed []types.UID) {
	pods := make(map[types.UID]Pod, len(next))
	waits, replaced := next.findPredecessors(), next.findReplaced()
	restarts := d.restarts   // only publish writes it
	version := d.version + 1 // only publish writes version, so reading it needs no lock
	for uid, row := range next {
		p := Pod{
			Pod: row.Pod, Source: row.Source, Origin: row.Origin, Deleting: row.Deleting,
			Grace: row.Grace, Lives: row.Lives, Predecessor: waits[uid],
		}
		if before, found := d.pods[uid]; found && p.Lives > before.Lives {
			if p.Source == API {
				restarts.fromAPI++
			} else {
				restarts.static++
			}
		}
		p.Version = d.pods[uid].Version
		if p != d.pods[uid] {
			p.Version = version
			changed = append(changed, uid)
		}
		pods[uid] = p
	}
	for uid := range d.pods {
		if _, ok := pods[uid]; !ok {
			changed = append(changed, uid)
		}
	}
	d.logNew(problemsOf(d.blocked), problemsOf(blocked))
	d.rows = next
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(changed) > 0 {
		d.version = version
	}
	d.pods, d.replaced, d.blocked, d.restarts = pods, replaced, blocked, restarts
	return changed
}
