package storage

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/eventtest"
	"github.com/islet-edge/islet/internal/podtest"
	"github.com/islet-edge/islet/runtime/mounts/mountstest"
)

// TestMain runs the tests in a separate mount namespace.
func TestMain(m *testing.M) {
	os.Exit(mountstest.Main(func() int { return eventtest.Main(m, "storage") }))
}

func requireNoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// An objects is a fake of the API objects that a node knows.
type objects struct {
	mu      sync.Mutex
	claims  map[string]*v1.PersistentVolumeClaim
	volumes map[string]*v1.PersistentVolume
}

func (o *objects) Claim(_ *v1.Pod, name string) (*v1.PersistentVolumeClaim, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c := o.claims[name]; c != nil {
		return c, nil
	}
	return nil, apierrors.NewNotFound(v1.Resource("persistentvolumeclaims"), name)
}

func (o *objects) PersistentVolume(_ *v1.Pod, name string) (*v1.PersistentVolume, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if pv := o.volumes[name]; pv != nil {
		return pv, nil
	}
	return nil, apierrors.NewNotFound(v1.Resource("persistentvolumes"), name)
}

// set changes a volume.
func (o *objects) set(pv *v1.PersistentVolume) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.volumes[pv.Name] = pv
}

func (o *objects) VolumeSecret(_ *v1.Pod, _, name string) (*v1.Secret, error) {
	return &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{"node.session.auth.username": []byte("u"), "node.session.auth.password": []byte("p")}}, nil
}

func (o *objects) Renew(context.Context, *v1.Pod) error { return nil }

// This helper adds a claim and a volume that are bound to each other. The claim has the given name.
func (o *objects) bound(name string, source v1.PersistentVolumeSource) (*v1.PersistentVolumeClaim, *v1.PersistentVolume) {
	c := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("claim-" + name)}}
	c.Spec.VolumeName, c.Status.Phase = "pv-"+name, v1.ClaimBound
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name}}
	pv.Spec.PersistentVolumeSource, pv.Spec.ClaimRef = source, &v1.ObjectReference{UID: c.UID}
	if o.claims == nil {
		o.claims, o.volumes = map[string]*v1.PersistentVolumeClaim{}, map[string]*v1.PersistentVolume{}
	}
	o.claims[name], o.volumes[pv.Name] = c, pv
	return c, pv
}

// podWith returns a pod with a volume for each of the named claims. Its container mounts them.
func podWith(name string, claims ...string) *v1.Pod {
	return podtest.New(name, podtest.UID("uid-"+name), podtest.Claims(claims...))
}

// openStore opens a real database in a directory. A test in a synctest bubble must close the database inside the bubble.
func openStore(t testing.TB, dir string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), filepath.Join(dir, "islet.db"), slog.New(slog.DiscardHandler))
	requireNoError(t, err)
	return s
}

func ephemeral(p *v1.Pod, volume string) string { return p.Name + "-" + volume }

func newMounter(t testing.TB, root string, l Ledger, o Objects, drivers ...Driver) *Mounter {
	t.Helper()
	k, err := New(t.Context(), Config{Root: root, Drivers: drivers, Ledger: l, Objects: o, Claim: ephemeral})
	requireNoError(t, err)
	return k
}

// A kernel is a fake of the machine's kernel, with the mounted volumes. It survives restarts of the agent.
type kernel struct {
	testing.TB
	ledger *store.Store

	mu      sync.Mutex
	mounted map[string]string // the key is the path, the value the volume
	busy    map[string]bool   // volumes with a running driver call
	running map[string]bool   // pods with running containers; their volumes must not be unmounted
	chance  *rand.Rand
	faults  int // one of this number of calls fails; 0: none
}

// A life is one run of the agent. After its end, its calls have no effect.
type life struct {
	*kernel
	end   context.CancelFunc
	over  bool // protected by mu
	gone  bool // the machine has rebooted; running calls of the driver have no effect
	until int  // number of remaining calls
}

// exitIfDead ends the calling goroutine if the agent has died or dies at this call.
func (l *life) exitIfDead() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.until--; l.until == 0 {
		l.over = true
	}
	if l.over {
		runtime.Goexit()
	}
}

// Volumes returns the rows of the real ledger.
func (l *life) Volumes(ctx context.Context) ([]store.Volume, error) { return l.ledger.Volumes(ctx) }

func (l *life) PutVolume(ctx context.Context, v store.Volume) error {
	l.exitIfDead()
	if l.fails() {
		return errors.New("the disk is full")
	}
	defer l.exitIfDead()
	return l.ledger.PutVolume(ctx, v)
}

func (l *life) RemoveVolume(ctx context.Context, key store.VolumeKey) error {
	l.exitIfDead()
	l.mu.Lock()
	if l.mounted[key.Path] != "" {
		l.Errorf("%v is removed from the ledger while it is mounted", key)
	}
	l.mu.Unlock()
	if l.fails() {
		return errors.New("the disk is full")
	}
	defer l.exitIfDead()
	return l.ledger.RemoveVolume(ctx, key)
}

func (l *life) fails() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.faults > 0 && l.chance.IntN(l.faults) == 0
}

func (l *life) SetsGroup(Volume, Use) bool { return true }

// setGroup changes the group of a volume's files. It may fail or take long. The volume must stay mounted meanwhile, and no other call may
// change the group of its files.
func (l *life) setGroup(ctx context.Context, dir string, _ int, _ bool) error {
	l.mu.Lock()
	id, fault := l.mounted[dir], -1
	if l.faults > 0 {
		fault = l.chance.IntN(l.faults)
	}
	if id == "" && !l.over {
		l.Errorf("%s: the group is changed without a mount", dir)
	}
	walk := "group of " + id
	if l.busy[walk] {
		l.Errorf("two changes of the group of %s at once", id)
	}
	l.busy[walk] = true
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.busy[walk] = false
	}()
	var err error
	switch {
	case fault == 0:
		err = errors.New("the disk fails")
	case fault > 5:
		if err = l.takeLong(ctx); err != nil {
			time.Sleep(time.Second) // for the current file
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mounted[dir] != id && !l.over {
		l.Errorf("%s is unmounted while the group of its files is changed", dir)
	}
	return err
}

// takeLong is a long step of an operation.
func (l *life) takeLong(ctx context.Context) error {
	ctx, end := longStep(ctx, "the test waits")
	defer end()
	select {
	case <-time.After(10 * time.Minute):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *life) Plugin() string                           { return "kubernetes.io/csi" }
func (l *life) Serves(s *v1.PersistentVolumeSource) bool { return s.CSI != nil }
func (l *life) StagePath(v Volume) string {
	if v.Source.CSI.FSType == "unstaged" {
		return ""
	}
	return "/staged/" + v.Name
}

func (l *life) WaitAttached(ctx context.Context, _ Volume, _ Use) error {
	return l.act(ctx, "", func() {})
}

func (l *life) Stage(ctx context.Context, v Volume, path string, _ Use) error {
	return l.act(ctx, v.ID, func() { l.mount(v.ID, "", path) })
}

func (l *life) Publish(ctx context.Context, v Volume, staged string, u Use) error {
	return l.act(ctx, v.ID, func() {
		if staged != "" && l.mounted[staged] != v.ID {
			l.Errorf("%s is published while it is not staged", v.ID)
		}
		l.mount(v.ID, string(u.Pod.UID), u.Path)
	})
}

func (l *life) Unpublish(ctx context.Context, v Volume, uid types.UID, path string) error {
	return l.act(ctx, v.ID, func() {
		if l.running[string(uid)] {
			l.Errorf("%s is unmounted under the running pod %s", v.ID, uid)
		}
		delete(l.mounted, path)
	})
}

func (l *life) Unstage(ctx context.Context, v Volume, path string) error {
	return l.act(ctx, v.ID, func() {
		for p, id := range l.mounted {
			if id == v.ID && p != path {
				l.Errorf("%s is unstaged while it is mounted at %s", v.ID, p)
			}
		}
		delete(l.mounted, path)
	})
}

// mount fails the test if the ledger has no row for the mount. The caller holds mu.
func (l *life) mount(id, pod, path string) {
	rows, err := l.ledger.Volumes(context.Background())
	if err != nil {
		l.Error(err)
	}
	for _, r := range rows {
		if r.VolumeKey == (store.VolumeKey{Volume: id, Pod: pod, Path: path}) {
			l.mounted[path] = id
			return
		}
	}
	l.Errorf("%s is mounted at %s without a row in the ledger", id, path)
}

// This helper performs one call of a driver. The call may fail before or after its effect, or hang until its context ends. The agent may
// die at this call.
func (l *life) act(ctx context.Context, id string, do func()) error {
	l.exitIfDead()
	l.mu.Lock()
	if id != "" && l.busy[id] {
		l.Errorf("two calls about %s at once", id)
	}
	l.busy[id] = id != ""
	fault := -1
	if l.faults > 0 {
		fault = l.chance.IntN(l.faults)
	}
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.busy[id] = false
	}()
	switch fault {
	case 0:
		return errors.New("the driver fails")
	case 1, 2:
		<-ctx.Done()
		if fault == 1 {
			return ctx.Err()
		}
	case 3:
		panic("the driver panics")
	case 5:
		if err := l.takeLong(ctx); err != nil {
			return err
		}
	}
	l.mu.Lock()
	if l.gone {
		l.mu.Unlock()
		runtime.Goexit()
	}
	do()
	l.mu.Unlock()
	l.exitIfDead()
	if fault == 4 {
		return errors.New("the driver fails although it has done it")
	}
	return nil
}

// This helper returns a function that records events of pods. The function checks that docs/events.md lists the events, and sends them to a
// channel.
func noting(events chan<- string) func(*v1.Pod, string, string, string) {
	return func(_ *v1.Pod, kind, reason, message string) {
		eventtest.RecordEvent(kind, reason, message)
		events <- kind + " " + reason + ": " + message
	}
}
