package csi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/volume/storage"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/runtime/mounts"
)

// Claim, PersistentVolume and Renew return the claims and volumes of a world. A claim and its volume have the same name.
func (w *world) Claim(_ *v1.Pod, name string) (*v1.PersistentVolumeClaim, error) {
	c := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("claim-" + name)}}
	c.Spec.VolumeName, c.Status.Phase = name, v1.ClaimBound
	return c, nil
}

func (w *world) PersistentVolume(_ *v1.Pod, name string) (*v1.PersistentVolume, error) {
	if w.noVolume.Load() {
		return nil, errors.New("the API server cannot be reached")
	}
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pv.Spec.ClaimRef = &v1.ObjectReference{UID: types.UID("claim-" + name)}
	pv.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: "handle-" + name}
	return pv, nil
}

func (w *world) Renew(context.Context, *v1.Pod) error { return nil }

// A node is a world with a store for the mounted volumes.
type node struct {
	*world
	db      *store.Store
	mounter *storage.Mounter
	kill    context.CancelFunc // ends all calls
	life    context.Context
	inUse   func(context.Context, string) error // Config.InUse
}

// newStore replaces the store by an empty one.
func (n *node) newStore() {
	n.Helper()
	if n.db != nil {
		n.db.Close()
	}
	var err error
	n.db, err = store.Open(context.Background(), filepath.Join(n.TempDir(), "islet.db"), slog.New(slog.DiscardHandler))
	requireNoError(n.T, err)
}

// start restarts the agent. The driver is not registered yet.
func (n *node) start() {
	n.Helper()
	if n.kill != nil {
		n.kill()
		n.Drivers.Close()
	}
	n.life, n.kill = context.WithCancel(context.Background())
	var err error
	log := slog.New(slog.DiscardHandler)
	n.Drivers, err = New(Config{Root: n.root, Node: "n", Objects: n.world, InUse: n.inUse, Log: log})
	requireNoError(n.T, err)
	n.mounter, err = storage.New(n.life, storage.Config{
		Root: n.root, Drivers: []storage.Driver{n.Drivers}, Ledger: n.db, Objects: n.world, Log: log,
	})
	requireNoError(n.T, err)
}

// This helper returns the sorted mounts below the root directory.
func (n *node) mounted() []string {
	n.Helper()
	below, err := mounts.ListBelow(n.root)
	requireNoError(n.T, err)
	slices.Sort(below)
	return below
}

// checkRecords checks that the store has a row for each mount, and for each volume that the driver has not unstaged.
func (n *node) checkRecords(after string) {
	n.Helper()
	rows, err := n.db.Volumes(context.Background())
	requireNoError(n.T, err)
	for _, r := range rows {
		if !slices.Contains(n.mounter.InUse(), r.Volume) {
			n.Fatalf("after %s, %s is not in use", after, r.Volume)
		}
	}
	for _, at := range n.mounted() {
		if !slices.ContainsFunc(rows, func(r store.Volume) bool { return r.Path == at }) {
			n.Fatalf("after %s, %s is not in the store", after, at)
		}
	}
	n.owed.Range(func(id, _ any) bool {
		if !slices.ContainsFunc(rows, func(r store.Volume) bool { return strings.HasSuffix(r.Volume, "^"+id.(string)) }) {
			n.Fatalf("after %s, the driver has not unstaged %s, which is not in the store", after, id)
		}
		return true
	})
}

// TestMachine mounts and unmounts volumes of three pods at random. Meanwhile the driver fails, hangs, dies or returns false results, the
// agent is killed, the database is deleted, and the machine reboots. Each mount must always be in the store. In the end, it must be
// possible to unmount all volumes, and no data may be lost.
func TestMachine(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t)
			requireNoError(t, os.WriteFile(filepath.Join(w.data, "kept"), []byte("kept"), 0o600))
			n := &node{world: w}
			n.newStore()
			defer func() { n.db.Close() }()
			n.start()
			n.register()
			(&machine{node: n, rand: rand.New(rand.NewPCG(seed, 0))}).run(40)
			n.endFaults()
			n.start()
			n.register()
			// The data of all volumes are in one directory. So the first volume cannot be unmounted while another volume is mounted.
			for _, uid := range n.mounter.Pods() {
				if err := n.mounter.TearDown(n.life, uid); err != nil {
					t.Log(err)
				}
			}
			for _, uid := range n.mounter.Pods() {
				requireNoError(t, n.mounter.TearDown(n.life, uid))
			}
			requireNoError(t, n.mounter.Sweep(n.life))
			rows, err := n.db.Volumes(context.Background())
			if m := n.mounted(); err != nil || len(m) > 0 || len(rows) > 0 {
				t.Errorf("left: %v, %v, %v", m, rows, err)
			}
			n.checkUnstaged()
			if text, err := os.ReadFile(filepath.Join(n.data, "kept")); string(text) != "kept" {
				t.Errorf("data was lost: %v", err)
			}
		})
	}
}

type machine struct {
	*node
	rand *rand.Rand
}

// The keys of faulty.fault that are used while a volume is mounted or unmounted.
var (
	mountMethods   = []string{"stage", "publish"}
	unmountMethods = []string{"unstage", "unpublish", "after unstage"}
)

// endFaults removes all faults.
func (n *node) endFaults() {
	for _, m := range slices.Concat(mountMethods, unmountMethods) {
		n.fails(m, nil)
	}
}

// fault adds a random fault to one of the given methods of the driver. It returns the names of the method and the fault.
func (m *machine) fault(methods []string, stop context.CancelFunc) string {
	method := methods[m.rand.IntN(len(methods))]
	how, name := []func(context.Context) error{
		func(context.Context) error { return status.Error(codes.Internal, "broken") },
		func(called context.Context) error { stop(); <-called.Done(); return called.Err() },
		func(context.Context) error { return errLie },
	}, []string{" fails", " hangs", " lies"}
	i := m.rand.IntN(len(how))
	m.fails(method, how[i])
	return method + name[i]
}

func (m *machine) run(steps int) {
	m.Helper()
	for range steps {
		pod := podNamed(fmt.Sprint("p", m.rand.IntN(3)))
		pod.Spec.Volumes = []v1.Volume{
			{
				Name: "data",
				VolumeSource: v1.VolumeSource{
					PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: fmt.Sprint("c", m.rand.IntN(2))},
				},
			},
		}
		ctx, stop := context.WithCancel(m.life)
		what, step := "", m.rand.IntN(11)
		if m.rand.IntN(2) == 0 {
			methods := mountMethods
			if step >= 4 {
				methods = unmountMethods
			}
			what = m.fault(methods, stop) + ", "
		}
		var err error
		switch {
		case step < 4:
			what += "set up " + pod.Name
			var path string
			if path, err = m.mounter.SetUp(ctx, pod, &pod.Spec.Volumes[0], ""); err == nil {
				_, err = os.Stat(filepath.Join(path, "kept"))
				if errors.Is(err, os.ErrNotExist) && strings.Contains(what, "lies") {
					err = nil
				} else if err != nil {
					m.Fatalf("%s: the volume does not exist: %v", what, err)
				}
			}
		case step < 7:
			what += "tear down " + pod.Name
			err = m.mounter.TearDown(ctx, pod.UID)
		case step == 7:
			what = "the agent is killed"
			m.start()
			m.register()
		case step == 8:
			what = "the driver is replaced"
			m.Deregister(m.plugin())
			m.register()
		case step == 9:
			what = "the database is deleted"
			m.kill()
			m.newStore()
			m.start()
			m.register()
		default:
			what = "the machine reboots"
			m.start()
			requireNoError(m.T, mounts.DetachBelow(m.root))
			if m.rand.IntN(2) == 0 { // pods may start before the driver does
				if _, err := m.mounter.SetUp(ctx, pod, &pod.Spec.Volumes[0], ""); err == nil {
					m.Fatal("a volume without its driver")
				}
			}
			m.register()
		}
		stop()
		m.endFaults()
		m.Logf("%s: %v", what, err)
		m.checkRecords(what)
	}
}
