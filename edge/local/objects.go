package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/manifest"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podspec"
)

// A Key names an object of a source.
type Key = store.LocalKey

// A Claimed is an object that a source has.
type Claimed struct {
	Object manifest.Object // not to be changed
	Origin string          // the file or URL, for people
}

// A Problem is why an object of a source cannot be as it says.
type Problem struct {
	Source, Origin, Field, Message string
}

// A Store keeps the objects over a restart. *store.Store is one.
type Store interface {
	Locals(ctx context.Context) ([]store.Local, error)
	// UpdateLocals writes all or nothing, durably.
	UpdateLocals(ctx context.Context, put []store.Local, remove []store.LocalKey) error
}

// Config is what Open needs.
type Config struct {
	Store   Store
	Changed func(types.UID)  // something that the pod names has changed; must not block
	Now     func() time.Time // for the age of objects; nil: time.Now
	Log     *slog.Logger
}

// Objects are those of all sources. All methods may be called from any goroutine.
type Objects struct {
	c Config

	changing sync.Mutex // one change at a time, from reading the rows to publishing new ones
	told     map[string]told

	mu       sync.RWMutex // guards what is below; never held during I/O
	rows     rows
	problems map[string][]Problem
	pods     map[types.UID]map[Key]bool // what each names; true: it is the pod's even when it is gone
}

// told is what a source said last.
type told struct {
	claimed []Claimed
	unsure  map[string]bool
}

// Open loads what the store has. pods are those that the node had before.
func Open(ctx context.Context, c Config, pods []*v1.Pod) (*Objects, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	stored, err := c.Store.Locals(ctx)
	if err != nil {
		return nil, err
	}
	o := &Objects{c: c, told: map[string]told{}, rows: rows{}, problems: map[string][]Problem{}, pods: map[types.UID]map[Key]bool{}}
	for _, s := range stored {
		obj := manifest.New(s.Kind)
		if obj == nil {
			c.Log.Error("a stored object of a manifest is of no known kind", "object", s.LocalKey.String())
			continue
		}
		if err := obj.(interface{ Unmarshal([]byte) error }).Unmarshal(s.Data); err != nil {
			c.Log.Error("a stored object of a manifest cannot be decoded, it is read anew", "object", s.LocalKey.String(), "error", err)
			continue
		}
		o.rows[s.LocalKey] = row{object: obj, origin: s.Origin, gone: s.Gone}
	}
	for _, pod := range pods {
		o.register(pod, true)
	}
	return o, o.forget(ctx)
}

// Has reports whether a pod names any object.
func (o *Objects) Has(uid types.UID) bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.pods[uid] != nil
}

// Release forgets a pod, and what is gone but for it.
func (o *Objects) Release(ctx context.Context, uid types.UID) error {
	o.mu.Lock()
	_, known := o.pods[uid]
	delete(o.pods, uid)
	o.mu.Unlock()
	if !known {
		return nil
	}
	return o.forget(ctx)
}

// forget removes rows that are gone and that no pod has.
func (o *Objects) forget(ctx context.Context) error {
	return o.change(ctx, func(rows, map[string][]Problem) error { return nil })
}

// sourceOf is where a pod comes from; "": from the API server.
func sourceOf(pod *v1.Pod) string {
	if s := pod.Annotations[keys.ConfigSource]; s != keys.SourceAPI {
		return s
	}
	return ""
}

// Serves reports whether a pod is the node's own, whose objects are these.
func Serves(pod *v1.Pod) bool { return sourceOf(pod) != "" }

// Register notes what a pod names: from then on it is told of changes, and has what is
// there now as long as it lives.
func (o *Objects) Register(pod *v1.Pod) { o.register(pod, false) }

// register is Register; had says that the pod had what is there, gone or not.
func (o *Objects) register(pod *v1.Pod, had bool) {
	source := sourceOf(pod)
	if source == "" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	uses := o.pods[pod.UID]
	podspec.Names(&pod.Spec, func(kind, name string) {
		if uses == nil {
			uses = map[Key]bool{}
			o.pods[pod.UID] = uses
		}
		k := Key{Source: source, Kind: kind, Namespace: pod.Namespace, Name: name}
		r, there := o.rows[k]
		if _, known := uses[k]; !known {
			uses[k] = there && (had || !r.gone)
		}
	})
}

// change makes an edit of all rows, stores the difference, publishes it and tells the pods
// that name what changed. An error means that nothing changed.
func (o *Objects) change(ctx context.Context, edit func(next rows, problems map[string][]Problem) error) error {
	o.changing.Lock()
	defer o.changing.Unlock()
	next, problems := maps.Clone(o.rows), maps.Clone(o.problems)
	if err := edit(next, problems); err != nil {
		return err
	}
	has := o.had()
	for k, r := range next {
		if r.gone && !has[k] {
			delete(next, k)
		}
	}
	put, remove, changed, err := difference(o.rows, next)
	if err != nil {
		return err
	}
	if err := o.c.Store.UpdateLocals(ctx, put, remove); err != nil {
		return err
	}
	for _, uid := range o.publish(next, problems, changed) {
		o.c.Changed(uid)
	}
	return nil
}

// had gives what some pod has, if it is gone or not.
func (o *Objects) had() map[Key]bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	has := map[Key]bool{}
	for _, uses := range o.pods {
		for k, had := range uses {
			if had {
				has[k] = true
			}
		}
	}
	return has
}

func (o *Objects) publish(next rows, problems map[string][]Problem, changed map[Key]bool) (users []types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.logNew(problems)
	o.rows, o.problems = next, problems
	for uid, uses := range o.pods {
		touched := false
		for k := range uses {
			if changed[k] {
				touched = true
				r, there := next[k]
				uses[k] = uses[k] || there && !r.gone
			}
		}
		if touched {
			users = append(users, uid)
		}
	}
	return users
}

func (o *Objects) logNew(problems map[string][]Problem) {
	for source, now := range problems {
		for _, p := range now {
			if !slices.Contains(o.problems[source], p) {
				o.c.Log.Warn("an object of a manifest has a problem", "source", p.Source, "origin", p.Origin, "field", p.Field, "problem", p.Message)
			}
		}
	}
}

// Problems gives all there are, by source.
func (o *Objects) Problems() (all []Problem) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	for _, source := range slices.Sorted(maps.Keys(o.problems)) {
		all = append(all, o.problems[source]...)
	}
	return all
}

// Set takes the full set of objects of a source in place of the former one. It is unsure
// of what came from some origins; those objects stay.
func (o *Objects) Set(ctx context.Context, source string, claimed []Claimed, unsure map[string]bool) error {
	return o.change(ctx, func(next rows, problems map[string][]Problem) error {
		o.told[source] = told{claimed, unsure} // under changing
		problems[source] = next.set(source, claimed, unsure, o.c.Now())
		for _, other := range slices.Sorted(maps.Keys(o.told)) { // what was theirs may be free now
			if t := o.told[other]; other != source && len(problems[other]) > 0 {
				problems[other] = next.set(other, t.claimed, t.unsure, o.c.Now())
			}
		}
		return nil
	})
}

// What applying an object does.
const (
	Created    = "created"
	Configured = "configured"
	Unchanged  = "unchanged"
)

// errDry ends a change that is only tried.
var errDry = errors.New("only tried")

// Apply adds objects to the local source or changes them, all or none, and says what that
// does to each. dry only says so.
func (o *Objects) Apply(ctx context.Context, objects []manifest.Object, dry bool) (actions []string, err error) {
	err = o.change(ctx, func(next rows, _ map[string][]Problem) error {
		for _, obj := range objects {
			k := keyOf(keys.SourceLocal, obj)
			before, there := next[k]
			if p := next.put(keys.SourceLocal, Claimed{Object: obj}, o.c.Now()); p != nil {
				return fmt.Errorf("%s: %s: %s", k, p.Field, p.Message)
			}
			switch {
			case !there || before.gone:
				actions = append(actions, Created)
			case before == next[k]:
				actions = append(actions, Unchanged)
			default:
				actions = append(actions, Configured)
			}
		}
		if dry {
			return errDry
		}
		return nil
	})
	if errors.Is(err, errDry) {
		err = nil
	}
	return actions, err
}

// Delete removes an object of the local source; found: there was one.
func (o *Objects) Delete(ctx context.Context, kind, namespace, name string) (found bool, err error) {
	k := Key{Source: keys.SourceLocal, Kind: kind, Namespace: namespace, Name: name}
	err = o.change(ctx, func(next rows, _ map[string][]Problem) error {
		r, there := next[k]
		if found = there && !r.gone; found {
			r.gone = true
			next[k] = r
		}
		return nil
	})
	return found, err
}
