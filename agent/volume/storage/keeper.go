package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/store"
)

// Config is what a Keeper needs.
type Config struct {
	Root    string   // --root-dir
	Node    string   // its name, for people
	Drivers []Driver // beyond those that a node has of itself
	Ledger  Ledger
	Objects Objects                                              // nil: this node has no API server
	Resizer Resizer                                              // learns how claims grow; nil: nobody does
	Labels  func() map[string]string                             // of the Node; nil: none
	Claim   func(*v1.Pod, string) string                         // names the claim of a generic ephemeral volume
	Period  time.Duration                                        // volumes are measured once in it; less than 0: never
	Label   func(user, role, kind, level string) (string, error) // of files of a container that asks for that; nil: SELinux is off
	Event   func(pod *v1.Pod, eventType, reason, message string) // nil: nobody is told
	Log     *slog.Logger                                         // nil: none
}

// A Keeper has the volumes of this node's pods. Its methods may be called from any
// goroutine.
type Keeper struct {
	cfg        Config
	root       string // real path
	operations *prometheus.HistogramVec

	mu         sync.Mutex
	rows       map[store.VolumeKey]record // as the ledger has them
	ready      map[store.VolumeKey]bool   // mounted by this run of the agent; true: a mount point, else a directory or a link
	flight     map[use]*flight            // calls for a pod's volume that have not ended
	turns      map[string]*turn           // by Volume.ID; those that somebody has or wants
	probes     map[string]*probing        // by path; those that have not ended
	measures   map[string]*measure        // by path; of what somebody asked for
	expansions map[use]*expansion         // those that have failed
}

// A use is a volume of a pod.
type use struct {
	id  string
	pod types.UID
}

// A flight is the calls for one use that have not ended.
type flight struct {
	calls int
	since time.Time // of the first
}

// A turn lets one at a time ask a driver about a volume.
type turn struct {
	free  chan struct{} // capacity 1: full while somebody has it
	users int
}

// New takes over what the ledger says. It mounts and unmounts nothing.
func New(ctx context.Context, cfg Config) (*Keeper, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Labels == nil {
		cfg.Labels = func() map[string]string { return nil }
	}
	root, err := filepath.EvalSymlinks(cfg.Root)
	if err != nil {
		return nil, fmt.Errorf("find the root directory: %w", err)
	}
	cfg.Drivers = append(builtIn(root, cfg.Objects), cfg.Drivers...)
	k := &Keeper{cfg: cfg, root: root, ready: map[store.VolumeKey]bool{}, flight: map[use]*flight{}, turns: map[string]*turn{}, probes: map[string]*probing{}, measures: map[string]*measure{}, expansions: map[use]*expansion{}, operations: newOperations()}
	k.rows, err = load(ctx, cfg.Ledger, cfg.Log)
	return k, err
}

// errBusy is why a call gave up that waited for another one.
var errBusy = errors.New("another operation on the volume has not ended")

// alone calls f while nobody else asks a driver about the volume. When ctx ends, so does
// the call; f then goes on by itself and keeps its turn until it returns.
func (k *Keeper) alone(ctx context.Context, id string, pod types.UID, f func(context.Context) error) error {
	u := use{id, pod}
	k.mu.Lock()
	t := k.turns[id]
	if t == nil {
		t = &turn{free: make(chan struct{}, 1)}
		k.turns[id] = t
	}
	t.users++
	if k.flight[u] == nil {
		k.flight[u] = &flight{since: time.Now()}
	}
	k.flight[u].calls++
	k.mu.Unlock()
	leave := func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(k.turns, id)
		}
		if k.flight[u].calls--; k.flight[u].calls == 0 {
			delete(k.flight, u)
		}
	}
	select {
	case t.free <- struct{}{}:
	case <-ctx.Done():
		leave()
		return fmt.Errorf("%w: %w", errBusy, ctx.Err())
	}
	ended := make(chan error, 1)
	go func() {
		err := guarded(ctx, f)
		leave() // first: who has the turn next finds nothing of this call
		<-t.free
		ended <- err
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// guarded keeps a driver that panics from taking the agent with it.
func guarded(ctx context.Context, f func(context.Context) error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return f(ctx)
}

// mount makes a volume of a pod appear, and gives where it is.
func (k *Keeper) mount(ctx context.Context, v Volume, d Driver, u Use) error {
	key := store.VolumeKey{Volume: v.ID, Pod: string(u.Pod.UID), Path: u.Path}
	if k.isReady(key) {
		return nil
	}
	return k.alone(ctx, v.ID, u.Pod.UID, func(ctx context.Context) error {
		if k.isReady(key) {
			return nil
		}
		operation := "volume_mount"
		if v.Block {
			operation = "map_volume"
		}
		if err := k.counted(operation, d.Plugin(), v, func() error { return k.publish(ctx, v, d, u, key) }); err != nil {
			return err
		}
		k.setReady(key, true)
		return nil
	})
}

// publish takes the steps of one volume of one pod. The caller has the volume's turn.
func (k *Keeper) publish(ctx context.Context, v Volume, d Driver, u Use, key store.VolumeKey) error {
	if slices.Contains(v.AccessModes, v1.ReadWriteOncePod) && k.usedByOthers(v.ID, key.Pod) {
		return setUpFailed(v, errors.New("volume uses the ReadWriteOncePod access mode and is already in use by another pod"))
	}
	if a, ok := d.(Attacher); ok {
		if err := a.Attached(ctx, v, u); err != nil {
			return fmt.Errorf("MountVolume.WaitForAttach failed for volume %q : %w", v.Name, err)
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	r := record{Plugin: d.Plugin(), Volume: v}
	if err := k.note(ctx, key, r); err != nil { // first, so that the pod's end undoes what is staged for it
		return setUpFailed(v, err)
	}
	staged, err := k.stage(ctx, v, d, u, r)
	if err != nil {
		return err
	}
	if err := d.Publish(ctx, v, staged, u); err != nil {
		return setUpFailed(v, err)
	}
	return k.group(ctx, v, d, u)
}

// stage mounts a volume for the node, if its driver does that, and gives where.
func (k *Keeper) stage(ctx context.Context, v Volume, d Driver, u Use, r record) (string, error) {
	s, ok := d.(Stager)
	if !ok {
		return "", nil
	}
	path := s.StagePath(v)
	if path == "" {
		return "", nil
	}
	key := store.VolumeKey{Volume: v.ID, Path: path}
	if k.isReady(key) {
		return path, nil
	}
	if err := k.note(ctx, key, r); err != nil {
		return "", setUpFailed(v, err)
	}
	if err := s.Stage(ctx, v, path, u); err != nil {
		if v.Block {
			return "", &mapError{fmt.Errorf("MapVolume.SetUpDevice failed for volume %q : %w", v.Name, err)}
		}
		return "", fmt.Errorf("MountVolume.MountDevice failed for volume %q : %w", v.Name, err)
	}
	k.setReady(key, true)
	return path, nil
}

// release undoes all volumes of a pod, each by itself, and what is staged for nobody any
// more. What a driver could not undo stays in the ledger.
func (k *Keeper) release(ctx context.Context, uid types.UID) error {
	ids := k.of(uid)
	errs := make([]error, len(ids))
	var all sync.WaitGroup
	for i, id := range ids {
		all.Go(func() {
			if err := k.alone(ctx, id, uid, func(ctx context.Context) error { return k.undo(ctx, id, string(uid)) }); err != nil {
				errs[i] = fmt.Errorf("volume %s: %w", id, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// undo unpublishes a volume of a pod, and unstages it if no pod has it then. The caller
// has the volume's turn.
func (k *Keeper) undo(ctx context.Context, id, pod string) error {
	k.forgetExpansion(use{id, types.UID(pod)})
	for key, r := range k.places(id, pod) {
		if err := k.unpublish(ctx, key, r); err != nil {
			return err
		}
	}
	return k.unstage(ctx, id)
}

// unstage unmounts a volume for the node, unless a pod has it. The caller has its turn.
func (k *Keeper) unstage(ctx context.Context, id string) error {
	if k.usedByOthers(id, "") {
		return nil
	}
	for key, r := range k.places(id, "") {
		s, ok := k.driver(r.Plugin).(Stager)
		if !ok {
			return fmt.Errorf("this node has no driver %s to unmount %s", r.Plugin, key.Path)
		}
		k.setReady(key, false)
		operation := "unmount_device"
		if r.Volume.Block {
			operation = "unmap_device"
		}
		if err := k.counted(operation, r.Plugin, r.Volume, func() error { return s.Unstage(ctx, r.Volume, key.Path) }); err != nil {
			return fmt.Errorf("UnmountDevice failed for volume %q : %w", r.Volume.Name, err)
		}
		if err := k.forget(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

func (k *Keeper) unpublish(ctx context.Context, key store.VolumeKey, r record) error {
	d := k.driver(r.Plugin)
	if d == nil {
		return fmt.Errorf("this node has no driver %s to unmount %s", r.Plugin, key.Path)
	}
	k.setReady(key, false)
	operation := "volume_unmount"
	if r.Volume.Block {
		operation = "unmap_volume"
	}
	if err := k.counted(operation, r.Plugin, r.Volume, func() error { return d.Unpublish(ctx, r.Volume, types.UID(key.Pod), key.Path) }); err != nil {
		return fmt.Errorf("UnmountVolume.TearDown failed for volume %q : %w", r.Volume.Name, err)
	}
	return k.forget(ctx, key)
}

// sweep undoes what is staged for nobody: the agent ended in between.
func (k *Keeper) sweep(ctx context.Context) error {
	k.mu.Lock()
	var ids []string
	for key := range k.rows {
		if key.Pod == "" {
			ids = append(ids, key.Volume)
		}
	}
	k.mu.Unlock()
	errs := []error{k.unmountUnknown()}
	for _, id := range ids {
		if k.usedByOthers(id, "") {
			continue
		}
		errs = append(errs, k.alone(ctx, id, "", func(ctx context.Context) error { return k.unstage(ctx, id) }))
	}
	return errors.Join(errs...)
}

// InUse lists the IDs of the volumes that are mounted, or are about to be: what a Node
// reports as volumesInUse, so that nobody detaches them.
func (k *Keeper) InUse() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var ids []string
	for key := range k.rows {
		ids = append(ids, key.Volume)
	}
	for u := range k.flight {
		ids = append(ids, u.id)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// driver gives the one of that name; nil: there is none.
func (k *Keeper) driver(plugin string) Driver {
	if i := slices.IndexFunc(k.cfg.Drivers, func(d Driver) bool { return d.Plugin() == plugin }); i >= 0 {
		return k.cfg.Drivers[i]
	}
	return nil
}

// ours reports whether a path is below the root directory.
func (k *Keeper) ours(path string) bool {
	return strings.HasPrefix(filepath.Clean(path), k.root+string(os.PathSeparator))
}

// A mapError is of a block volume.
type mapError struct{ error }

func (e *mapError) Unwrap() error { return e.error }

// EventReason is a kubelet's reason for such.
func (*mapError) EventReason() string { return "FailedMapVolume" }

func setUpFailed(v Volume, err error) error {
	if v.Block {
		return &mapError{fmt.Errorf("MapVolume.MapPodDevice failed for volume %q : %w", v.Name, err)}
	}
	return fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", v.Name, err)
}
