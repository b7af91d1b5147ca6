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
)

// Sources of pods, by the names a kubelet gives them in the annotation
// kubernetes.io/config.source. Local is islet's own: what a person applied.
const (
	File  = keys.SourceFile
	HTTP  = keys.SourceHTTP
	API   = keys.SourceAPI
	Local = keys.SourceLocal
)

var (
	// ErrNotFound is what Delete says of a UID that is not wanted.
	ErrNotFound = errors.New("not found")
	// ErrForeign refuses to change a pod that another source wants: that source
	// would only bring it back.
	ErrForeign = errors.New("it belongs to another source")
)

// A Pod is what this node is to do about one UID.
type Pod struct {
	Pod      *v1.Pod // not to be changed
	Source   string
	Origin   string        // the file or URL it comes from, for people
	Deleting bool          // to be ended; Forget it when nothing of it is left
	Grace    time.Duration // how long its containers get to end, when Deleting
	Lives    int           // how often it has ended and come back under its UID
	Waiting  types.UID     // not to be started before this pod, of the same name, is forgotten
	Version  uint64        // of Desired when it last changed
}

// A Claim is a pod that a source wants, or wants to end.
type Claim struct {
	Pod    *v1.Pod // its UID is set
	Origin string  // the file or URL, for people
	Ending *Ending // nil: it is to run
}

// An Ending is how a pod is to end.
type Ending struct {
	Grace  time.Duration // for all its containers
	Forced bool          // nobody waited for this node: its source has forgotten it, or is about to
}

// A Gone is a pod that its source no longer knows.
type Gone struct {
	UID    types.UID
	Ending *Ending // nil: as its manifest says
}

// A Problem is why something that a source says cannot be followed.
type Problem struct {
	Source  string
	Origin  string // the file or URL
	Field   string // path in the manifest, when it is about one
	Message string
}

// A Store keeps the rows. *store.Store is one.
type Store interface {
	Pods(ctx context.Context) ([]store.Pod, error)
	// UpdatePods writes all or nothing, durably.
	UpdatePods(ctx context.Context, put []store.Pod, remove []types.UID) error
}

// Config of Desired.
type Config struct {
	Store Store
	Poke  func(types.UID) // told of each changed UID; called without a lock held, must not block
	// Hold has no pod end because the full set of its source lacks it; Held tells of those. That
	// goes for one, too, that is to start when another of its name, or its own former life, has
	// ended: it starts meanwhile. It was wanted when this agent began, whose word is not taken for
	// what is wanted no more: where the agent only does not find it, the node would be without the
	// pod. Where somebody has removed it, it runs until an agent comes that does not hold.
	Hold bool
	Log  *slog.Logger
}

// Desired is safe for concurrent use.
type Desired struct {
	Config

	changing sync.Mutex // one group of changes at a time, from reading the rows to publishing new ones
	rows     rows

	asking sync.Mutex
	asked  []*change // wait for changing

	mu       sync.RWMutex // the published view; never held during I/O
	pods     map[types.UID]Pod
	version  uint64
	spoken   map[string]bool
	problems map[string][]Problem // by source, as it told
	blocked  map[string][]blocked // by source
	held     map[string][]types.UID
}

// New loads what the store has: the initial value of every source.
func New(c Config) (*Desired, error) {
	stored, err := c.Store.Pods(context.Background())
	if err != nil {
		return nil, err
	}
	d := &Desired{
		Config: c, rows: rows{}, blocked: map[string][]blocked{},
		spoken: map[string]bool{Local: true}, problems: map[string][]Problem{}, held: map[string][]types.UID{},
	}
	for _, p := range stored {
		rank(p.Source, p.Pod)
		d.rows[p.Pod.UID] = p
	}
	d.publish(d.rows, d.blocked)
	return d, nil
}

// rank is for pods of the node's own that a version stored which gave them no priority: their
// manifest may not be read again for as long as there is no network, or never.
func rank(source string, pod *v1.Pod) {
	if source != API {
		demand.Rank(pod)
	}
}

// Get gives the pod with a UID.
func (d *Desired) Get(uid types.UID) (Pod, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	p, ok := d.pods[uid]
	return p, ok
}

// List gives all pods by namespace, name and UID.
func (d *Desired) List() []Pod {
	d.mu.RLock()
	all := slices.Collect(maps.Values(d.pods))
	d.mu.RUnlock()
	slices.SortFunc(all, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(a.Pod.Namespace, b.Pod.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name), cmp.Compare(a.Pod.UID, b.Pod.UID))
	})
	return all
}

// Each calls f with all pods, in no order. It copies no list of them; f is short and asks
// nothing of d.
func (d *Desired) Each(f func(Pod)) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, p := range d.pods {
		f(p)
	}
}

// Version grows with every change of a pod.
func (d *Desired) Version() uint64 {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.version
}

// Spoken says whether a source has told its full set since the agent started.
// Until then what runs of that source is no orphan.
func (d *Desired) Spoken(source string) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.spoken[source]
}

// Held are the pods that only Hold keeps.
func (d *Desired) Held() (all []types.UID) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, held := range d.held {
		for _, uid := range held {
			if p, ok := d.pods[uid]; ok && !p.Deleting { // else somebody ended it meanwhile
				all = append(all, uid)
			}
		}
	}
	return all
}

// Problems gives all there are, by source and origin.
func (d *Desired) Problems() []Problem {
	d.mu.RLock()
	all := slices.Concat(slices.Collect(maps.Values(d.problems))...)
	all = append(all, problemsOf(d.blocked)...)
	d.mu.RUnlock()
	slices.SortFunc(all, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Origin, b.Origin), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Message, b.Message))
	})
	return all
}

// publish shows a change to readers and gives the UIDs whose Pod is another now.
func (d *Desired) publish(next rows, claims map[string][]blocked) (changed []types.UID) {
	pods := make(map[types.UID]Pod, len(next))
	waits := next.waits()
	version := d.version + 1 // only written here, so no lock to read it
	for uid, row := range next {
		p := Pod{Pod: row.Pod, Source: row.Source, Origin: row.Origin, Deleting: row.Deleting, Grace: row.Grace, Lives: row.Lives, Waiting: waits[uid]}
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
	d.logNew(problemsOf(d.blocked), problemsOf(claims))
	d.rows = next
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(changed) > 0 {
		d.version = version
	}
	d.pods, d.blocked = pods, claims
	return changed
}
