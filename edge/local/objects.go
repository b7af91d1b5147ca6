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

// A Key identifies an object of a source.
type Key = store.LocalKey

// A DefinedObject is an object that a source defines.
type DefinedObject struct {
	Object manifest.Object // must not be modified
	Origin string          // the file or URL; used in messages
}

// A Problem is the reason why an object of a source cannot be used.
type Problem struct {
	Source, Origin, Field, Message string
}

// A Store stores the objects across restarts. *store.Store implements it.
type Store interface {
	Locals(ctx context.Context) ([]store.Local, error)
	// UpdateLocals durably writes either all rows or none.
	UpdateLocals(ctx context.Context, put []store.Local, remove []store.LocalKey) error
	AddRewriter(table string, rewrite func(context.Context) error)
}

// Config contains the dependencies of Objects.
type Config struct {
	Store   Store
	Changed func(types.UID)  // called when an object of the pod has changed; must not block
	Now     func() time.Time // clock for the creation time of objects; the default is time.Now
	Log     *slog.Logger
}

// Objects manages the objects of all sources. Its methods are safe for concurrent use.
type Objects struct {
	c Config

	changing sync.Mutex // held during a change, from reading the rows to publishing the new rows
	lastSets map[string]sourceSet

	mu       sync.RWMutex // protects the fields below; never held during I/O
	rows     rows
	problems map[string][]Problem
	pods     map[types.UID]map[Key]bool // references of each pod; true if the pod may use the object after its removal
}

// sourceSet contains the arguments of the last Set of a source.
type sourceSet struct {
	claimed       []DefinedObject
	unsureOrigins map[string]bool
}

// Open loads the stored objects and registers the stored pods, which may use them.
func Open(ctx context.Context, c Config, pods []*v1.Pod) (*Objects, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	stored, err := c.Store.Locals(ctx)
	if err != nil {
		return nil, err
	}
	o := &Objects{
		c: c, lastSets: map[string]sourceSet{}, rows: rows{}, problems: map[string][]Problem{}, pods: map[types.UID]map[Key]bool{},
	}
	for _, s := range stored {
		obj := manifest.New(s.Kind)
		if obj == nil {
			c.Log.Error("a stored object of a manifest has an unknown kind", "object", s.LocalKey.String())
			continue
		}
		if err := obj.(interface{ Unmarshal([]byte) error }).Unmarshal(s.Data); err != nil {
			c.Log.Error("a stored object of a manifest cannot be decoded and is read again", "object", s.LocalKey.String(), "error", err)
			continue
		}
		o.rows[s.LocalKey] = row{object: obj, origin: s.Origin, isRemoved: s.Gone}
	}
	for _, pod := range pods {
		o.register(pod, true)
	}
	c.Store.AddRewriter("local", o.rewrite)
	return o, o.forget(ctx)
}

// rewrite replaces the stored objects with the known ones, because the store may have lost objects, or may have old copies.
func (o *Objects) rewrite(ctx context.Context) error {
	o.changing.Lock()
	defer o.changing.Unlock()
	stored, err := o.c.Store.Locals(ctx)
	if err != nil {
		return err
	}
	put, _, _, err := compareRows(nil, o.rows)
	if err != nil {
		return err
	}
	var remove []Key // UpdateLocals removes these rows before it writes the rows of put
	for i := range stored {
		if k := stored[i].LocalKey; manifest.New(k.Kind) != nil { // a newer islet may know other kinds
			remove = append(remove, k)
		}
	}
	return o.c.Store.UpdateLocals(ctx, put, remove)
}

// HasPod reports whether a registered pod references any object.
func (o *Objects) HasPod(uid types.UID) bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.pods[uid] != nil
}

// Release removes a pod. It also removes objects that no manifest defines any more and no other pod uses.
func (o *Objects) Release(ctx context.Context, uid types.UID) error {
	o.mu.Lock()
	_, found := o.pods[uid]
	delete(o.pods, uid)
	o.mu.Unlock()
	if !found {
		return nil
	}
	return o.forget(ctx)
}

// forget drops objects that no manifest defines any more and no pod uses.
func (o *Objects) forget(ctx context.Context) error {
	return o.applyEdit(ctx, func(rows, map[string][]Problem) error { return nil })
}

// sourceOf returns the source of a static pod, or "" for a pod of the API server.
func sourceOf(pod *v1.Pod) string {
	if s := pod.Annotations[keys.ConfigSource]; s != keys.SourceAPI {
		return s
	}
	return ""
}

// IsStatic reports whether a pod is a static pod. Only static pods use these objects.
func IsStatic(pod *v1.Pod) bool { return sourceOf(pod) != "" }

// Register records the references of a pod. From then on, Changed is called for the pod, and its objects are kept even if they are removed
// from their manifests.
func (o *Objects) Register(pod *v1.Pod) { o.register(pod, false) }

// register is like Register. If ranBefore is true, the pod already ran before the agent started. Such a pod may also use objects that were
// removed while it ran.
func (o *Objects) register(pod *v1.Pod, ranBefore bool) {
	source := sourceOf(pod)
	if source == "" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	uses := o.pods[pod.UID]
	podspec.VisitReferences(&pod.Spec, func(kind, name string) {
		if uses == nil {
			uses = map[Key]bool{}
			o.pods[pod.UID] = uses
		}
		k := Key{Source: source, Kind: kind, Namespace: pod.Namespace, Name: name}
		r, found := o.rows[k]
		if _, exists := uses[k]; !exists {
			uses[k] = found && (ranBefore || !r.isRemoved)
		}
	})
}

// applyEdit applies an edit to a copy of all rows. It stores and publishes the changed rows, and calls Changed for the pods that use them.
// If it returns an error, nothing has changed.
func (o *Objects) applyEdit(ctx context.Context, edit func(next rows, problems map[string][]Problem) error) error {
	o.changing.Lock()
	defer o.changing.Unlock()
	next, problems := maps.Clone(o.rows), maps.Clone(o.problems)
	if err := edit(next, problems); err != nil {
		return err
	}
	has := o.inUse()
	for k, r := range next {
		if r.isRemoved && !has[k] {
			delete(next, k)
		}
	}
	put, remove, changed, err := compareRows(o.rows, next)
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

// inUse returns the objects that at least one pod uses, including removed objects.
func (o *Objects) inUse() map[Key]bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	has := map[Key]bool{}
	for _, uses := range o.pods {
		for k, keep := range uses {
			if keep {
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
				r, found := next[k]
				uses[k] = uses[k] || found && !r.isRemoved
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
				o.c.Log.Warn("an object of a manifest has a problem",
					"source", p.Source, "origin", p.Origin, "field", p.Field, "problem", p.Message)
			}
		}
	}
}

// Problems returns all problems, sorted by source.
func (o *Objects) Problems() (all []Problem) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	for _, source := range slices.Sorted(maps.Keys(o.problems)) {
		all = append(all, o.problems[source]...)
	}
	return all
}

// Set replaces the objects of a source. Objects whose origin could not be read stay unchanged.
func (o *Objects) Set(ctx context.Context, source string, claimed []DefinedObject, unsure map[string]bool) error {
	return o.applyEdit(ctx, func(next rows, problems map[string][]Problem) error {
		o.lastSets[source] = sourceSet{claimed, unsure} // changing is held
		problems[source] = next.set(source, claimed, unsure, o.c.Now())
		for _, other := range slices.Sorted(maps.Keys(o.lastSets)) { // names that this source no longer uses may solve others' problems
			t := o.lastSets[other]
			if other != source && len(problems[other]) > 0 {
				problems[other] = next.set(other, t.claimed, t.unsureOrigins, o.c.Now())
			}
		}
		return nil
	})
}

// Results of Apply for one object.
const (
	Created    = "created"
	Configured = "configured"
	Unchanged  = "unchanged"
)

// errDry ends the edit of a dry run. applyEdit then discards the changed rows.
var errDry = errors.New("only tried")

// Apply adds or replaces objects of the local source and returns the result for each object. It applies either all objects or none. In a
// dry run, it only returns the results.
func (o *Objects) Apply(ctx context.Context, objects []manifest.Object, dry bool) (actions []string, err error) {
	err = o.applyEdit(ctx, func(next rows, _ map[string][]Problem) error {
		for _, obj := range objects {
			k := keyOf(keys.SourceLocal, obj)
			before, found := next[k]
			if p := next.put(keys.SourceLocal, DefinedObject{Object: obj}, o.c.Now()); p != nil {
				return fmt.Errorf("%s: %s: %s", k, p.Field, p.Message)
			}
			switch {
			case !found || before.isRemoved:
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

// Delete removes an object of the local source and reports whether it existed.
func (o *Objects) Delete(ctx context.Context, kind, namespace, name string) (found bool, err error) {
	k := Key{Source: keys.SourceLocal, Kind: kind, Namespace: namespace, Name: name}
	err = o.applyEdit(ctx, func(next rows, _ map[string][]Problem) error {
		r, exists := next[k]
		if found = exists && !r.isRemoved; found {
			r.isRemoved = true
			next[k] = r
		}
		return nil
	})
	return found, err
}
