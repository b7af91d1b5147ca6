package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

// growingDriver is a driver that can expand file systems.
type growingDriver struct{ grown chan string }

func (growingDriver) Plugin() string                           { return "kubernetes.io/csi" }
func (growingDriver) Serves(s *v1.PersistentVolumeSource) bool { return s.CSI != nil }
func (growingDriver) Publish(context.Context, Volume, string, Use) error {
	return nil
}
func (growingDriver) Unpublish(context.Context, Volume, types.UID, string) error { return nil }
func (g growingDriver) Expand(_ context.Context, _ Volume, _, published string, to v1.ResourceList) error {
	g.grown <- published + " " + to.Storage().String()
	return nil
}

// An adoptingDriver is a driver that adopts mounted volumes.
type adoptingDriver struct {
	growingDriver
	adopted []string

	mu  sync.Mutex
	err error
}

func (a *adoptingDriver) fails(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = err
}

func (a *adoptingDriver) Adopt(_ Volume, _ string, u Use) {
	a.adopted = append(a.adopted, u.Path+" "+u.Volume)
}

func (a *adoptingDriver) Expand(ctx context.Context, v Volume, staged, published string, to v1.ResourceList) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return errors.Join(a.growingDriver.Expand(ctx, v, staged, published, to), a.err)
}

type resizableDriver struct {
	objects
	told chan string
}

// state sets the status of a claim.
func (r *resizableDriver) state(c *v1.PersistentVolumeClaim, told string, change func(*v1.PersistentVolumeClaimStatus)) error {
	r.mu.Lock()
	c = r.claims[c.Name].DeepCopy()
	change(&c.Status)
	r.claims[c.Name] = c
	r.mu.Unlock()
	r.told <- told
	return nil
}

func (r *resizableDriver) ReportResizing(_ context.Context, c *v1.PersistentVolumeClaim) error {
	return r.state(c, "resizing "+c.Name, func(s *v1.PersistentVolumeClaimStatus) {
		s.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{v1.ResourceStorage: v1.PersistentVolumeClaimNodeResizeInProgress}
	})
}

func (r *resizableDriver) ResizeFailed(_ context.Context, c *v1.PersistentVolumeClaim, infeasible bool, message string) error {
	return r.state(c, fmt.Sprint("failed ", c.Name, " ", infeasible, " ", message), func(s *v1.PersistentVolumeClaimStatus) {
		if infeasible {
			s.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{v1.ResourceStorage: v1.PersistentVolumeClaimNodeResizeInfeasible}
		}
	})
}

func (r *resizableDriver) ReportResized(_ context.Context, c *v1.PersistentVolumeClaim, to resource.Quantity) error {
	return r.state(c, c.Name+" "+to.String(), func(s *v1.PersistentVolumeClaimStatus) {
		s.Capacity, s.AllocatedResourceStatuses = v1.ResourceList{v1.ResourceStorage: to}, nil
	})
}

// TestExpansion checks that an expanded volume is expanded on the node once, either when a pod starts or while a pod runs. The status of
// the claim is updated.
func TestExpansion(t *testing.T) {
	root, s := t.TempDir(), openStore(t, t.TempDir())
	defer s.Close()
	o := &resizableDriver{told: make(chan string, 1)}
	g := &adoptingDriver{growingDriver: growingDriver{make(chan string, 1)}}
	c, pv := o.bound("c", v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}})
	size := func(s string) v1.ResourceList { return v1.ResourceList{v1.ResourceStorage: resource.MustParse(s)} }
	c.Status.Capacity, pv.Spec.Capacity = size("1Gi"), size("2Gi")
	k := newMounter(t, root, s, o, g)
	k.cfg.Resizer = o
	events := make(chan string, 9)
	k.cfg.Node, k.cfg.Event = "n", noting(events)
	p := podWith("p", "c")
	path, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], "")
	requireNoError(t, err)
	if got, told := <-g.grown, <-o.told; got != path+" 2Gi" || told != "c 2Gi" {
		t.Errorf("%q, reported %q", got, told)
	}
	requireNoError(t, k.Refresh(p, &p.Spec.Volumes[0], "")) // nothing has changed
	pv = pv.DeepCopy()
	pv.Spec.Capacity = size("3Gi")
	o.set(pv)
	requireNoError(t, k.Refresh(p, &p.Spec.Volumes[0], ""))
	if got, told := <-g.grown, <-o.told; got != path+" 3Gi" || told != "c 3Gi" {
		t.Errorf("%q, reported %q", got, told)
	}
	for range 2 {
		if got := <-events; got != `Normal FileSystemResizeSuccessful: MountVolume.NodeExpandVolume succeeded for volume "pv-c" n` {
			t.Error(got)
		}
	}

	// A restarted agent adopts the mounted volume and expands it.
	requireNoError(t, os.MkdirAll(path, 0o755))
	requireNoError(t, syscall.Mount("none", path, "tmpfs", 0, ""))
	defer func() { requireNoError(t, syscall.Unmount(path, 0)) }()
	k = newMounter(t, root, s, o, g)
	k.cfg.Event, g.adopted = noting(events), nil
	k.Adopt([]*v1.Pod{p, podWith("other", "c"), podWith("none", "unknown")})
	if len(g.adopted) != 1 || g.adopted[0] != path+" c" {
		t.Error(g.adopted)
	}
	requireNoError(t, k.Refresh(p, &p.Spec.Volumes[0], "")) // adopts a volume whose claim was unknown at the start
	if len(g.adopted) != 2 || g.adopted[1] != path+" c" {
		t.Error(g.adopted)
	}
	pv = pv.DeepCopy()
	pv.Spec.Capacity = size("4Gi")
	o.set(pv)
	g.fails(errors.New("no room"))
	requireNoError(t, k.Refresh(p, &p.Spec.Volumes[0], ""))
	<-g.grown
	if got := <-events; got != `Warning VolumeResizeFailed: MountVolume.NodeExpandVolume failed for volume "pv-c" : no room` {
		t.Error(got)
	}
	requireNoError(t, k.TearDown(t.Context(), p.UID))
}

// TestExpansionReadOnly checks that a volume is not expanded if its pod mounts it read-only. The pod gets one event, and the claim keeps
// its size. Then another pod, which mounts the volume writable, expands it.
func TestExpansionReadOnly(t *testing.T) {
	s := openStore(t, t.TempDir())
	defer s.Close()
	o := &resizableDriver{told: make(chan string, 1)}
	g := &adoptingDriver{growingDriver: growingDriver{make(chan string, 1)}}
	size := func(s string) v1.ResourceList { return v1.ResourceList{v1.ResourceStorage: resource.MustParse(s)} }
	c, pv := o.bound("c", v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}})
	c.Status.Capacity, pv.Spec.Capacity = size("1Gi"), size("2Gi")
	k := newMounter(t, t.TempDir(), s, o, g)
	k.cfg.Resizer = o
	events := make(chan string, 9)
	k.cfg.Node, k.cfg.Event = "n", noting(events)
	p := podWith("p", "c")
	p.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
	_, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], "")
	requireNoError(t, err)
	if got := <-events; got != `Warning FileSystemResizeFailed: MountVolume.NodeExpandVolume failed for volume "pv-c" requested read-only file system` {
		t.Error(got)
	}
	_, err = k.SetUp(t.Context(), p, &p.Spec.Volumes[0], "")
	requireNoError(t, err)
	if len(g.grown) > 0 || len(events) > 0 || len(o.told) > 0 {
		t.Errorf("the driver was called %d times, %d more events, %d reports", len(g.grown), len(events), len(o.told))
	}
	writer := podWith("writer", "c")
	path, err := k.SetUp(t.Context(), writer, &writer.Spec.Volumes[0], "")
	requireNoError(t, err)
	if got, told := <-g.grown, <-o.told; got != path+" 2Gi" || told != "c 2Gi" {
		t.Errorf("%q, reported %q", got, told)
	}
	requireNoError(t, k.TearDown(t.Context(), writer.UID))
	requireNoError(t, k.TearDown(t.Context(), p.UID))
	if len(k.expansions) != 0 {
		t.Error("left:", k.expansions)
	}
}

// TestExpansionOnEachNode checks that each of two nodes that use a volume expands it once, also after a restart, although the claim has the
// new size when the first node has reported. Only this node reports. The second node also expands the volume if its row is that of an
// earlier version, but not if it mounts the volume only then.
func TestExpansionOnEachNode(t *testing.T) {
	o := &resizableDriver{told: make(chan string, 9)}
	size := func(s string) v1.ResourceList { return v1.ResourceList{v1.ResourceStorage: resource.MustParse(s)} }
	c, pv := o.bound("c", v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}})
	c.Status.Capacity, pv.Spec.Capacity = size("1Gi"), size("1Gi")
	p := podWith("p", "c")
	drivers, nodes, starts := map[string]*adoptingDriver{}, map[string]*Mounter{}, map[string]func() *Mounter{}
	for _, name := range []string{"first", "second", "earlier", "later"} {
		root, s, g := t.TempDir(), openStore(t, t.TempDir()), &adoptingDriver{growingDriver: growingDriver{make(chan string, 9)}}
		defer s.Close()
		drivers[name] = g
		starts[name] = func() *Mounter {
			k := newMounter(t, root, s, o, g)
			k.cfg.Resizer = o
			if name != "later" || o.claims["c"].Status.Capacity.Storage().Value() > 1<<30 {
				_, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], "")
				requireNoError(t, err)
			}
			return k
		}
		nodes[name] = starts[name]()
	}
	earlier := nodes["earlier"]
	for key := range earlier.rows {
		requireNoError(t, earlier.updateRow(t.Context(), key, func(r *record) { r.Size = 0 }))
	}
	requireNoError(t, earlier.Refresh(p, &p.Spec.Volumes[0], ""))
	stored, err := loadLedger(t.Context(), earlier.cfg.Ledger, earlier.cfg.Log)
	requireNoError(t, err)
	for key, r := range stored {
		if r.Size != 1<<30 {
			t.Errorf("%v: stored with the size %d", key, r.Size)
		}
	}
	pv = pv.DeepCopy()
	pv.Spec.Capacity = size("2Gi")
	o.set(pv)
	requireNoError(t, nodes["first"].Refresh(p, &p.Spec.Volumes[0], ""))
	<-drivers["first"].grown
	if told := <-o.told; told != "c 2Gi" {
		t.Errorf("reported %q", told)
	}
	nodes["later"] = starts["later"]()
	for _, name := range []string{"second", "earlier"} {
		requireNoError(t, nodes[name].Refresh(p, &p.Spec.Volumes[0], ""))
		<-drivers[name].grown
	}
	for name, k := range nodes {
		for range 2 {
			nothing := func(context.Context) error { return nil }
			requireNoError(t, k.withLock(t.Context(), "kubernetes.io/csi/d^h", "", nothing)) // the expansion has ended
			requireNoError(t, k.Refresh(p, &p.Spec.Volumes[0], ""))
			if len(drivers[name].grown) > 0 || len(o.told) > 0 {
				t.Errorf("%s: expanded again, or reported: %d", name, len(o.told))
			}
			k = starts[name]()
		}
	}
}

// TestExpansionFails checks that a failed expansion is reported in the same way as by a kubelet. The error decides whether the expansion is
// retried later, retried for another size, or not retried. The unmount of the volume ends the attempts.
func TestExpansionFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, t.TempDir())
		defer s.Close()
		o := &resizableDriver{told: make(chan string, 99)}
		g := &adoptingDriver{growingDriver: growingDriver{make(chan string, 99)}}
		size := func(s string) v1.ResourceList { return v1.ResourceList{v1.ResourceStorage: resource.MustParse(s)} }
		c, pv := o.bound("c", v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}})
		c.Status.Capacity, pv.Spec.Capacity, c.Spec.Resources.Requests = size("1Gi"), size("2Gi"), size("2Gi")
		k := newMounter(t, t.TempDir(), s, o, g)
		k.cfg.Resizer = o
		p := podWith("p", "c")
		state := func(now v1.ClaimResourceStatus) {
			requireNoError(t, o.state(c, "set", func(s *v1.PersistentVolumeClaimStatus) {
				s.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{v1.ResourceStorage: now}
			}))
			<-o.told
		}
		tried := func(what string, least, most int, told ...string) {
			t.Helper()
			synctest.Wait()
			if n := len(g.grown); n < least || n > most {
				t.Errorf("%s: tried %d times, not %d to %d", what, n, least, most)
			}
			for len(g.grown) > 0 {
				<-g.grown
			}
			for _, want := range told {
				if got := <-o.told; !strings.Contains(got, want) {
					t.Errorf("%s: reported %q, not %q", what, got, want)
				}
			}
			for len(o.told) > 0 {
				if got := <-o.told; len(told) == 0 || !strings.Contains(got, told[len(told)-1]) {
					t.Errorf("%s: reported %q", what, got)
				}
			}
		}
		state(v1.PersistentVolumeClaimControllerResizeInProgress)
		_, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], "")
		requireNoError(t, err)
		tried("the controller's turn", 0, 0)

		state(v1.PersistentVolumeClaimNodeResizePending)
		g.fails(&ExpandError{Err: errors.New("busy")})
		_, err = k.SetUp(t.Context(), p, &p.Spec.Volumes[0], "")
		requireNoError(t, err)
		tried("it may go on", 1, 1, "resizing c")
		requireNoError(t, k.Refresh(p, &p.Spec.Volumes[0], ""))
		tried("at once again", 0, 0)
		g.fails(&ExpandError{Err: errors.New("broken"), Final: true})
		time.Sleep(10 * time.Minute)
		tried("later", 4, 60, "failed c false failed to expand pvc with MountVolume.NodeExpandVolume failed")
		request := func(to string) {
			o.mu.Lock()
			defer o.mu.Unlock()
			now := o.claims["c"].DeepCopy()
			now.Spec.Resources.Requests = size(to)
			o.claims["c"] = now
		}
		request("3Gi") // the user has changed the request
		requireNoError(t, k.Refresh(p, &p.Spec.Volumes[0], ""))
		tried("another size", 1, 1, "failed c true")
		time.Sleep(time.Hour)
		tried("infeasible", 0, 0)

		request("2Gi")
		state(v1.PersistentVolumeClaimNodeResizePending)
		g.fails(&ExpandError{Err: errors.New("in use"), Final: true, InUse: true})
		requireNoError(t, k.Refresh(p, &p.Spec.Volumes[0], ""))
		tried("in use", 1, 1, "resizing c", "failed c false")
		time.Sleep(time.Hour)
		requireNoError(t, k.Refresh(p, &p.Spec.Volumes[0], ""))
		tried("in use still", 0, 0)
		requireNoError(t, k.TearDown(t.Context(), p.UID))
		if len(k.expansions) != 0 {
			t.Error("left:", k.expansions)
		}
	})
}

// TestGrown checks that a volume is expanded if the claim's capacity is smaller or if the API server waits for the node. It is not expanded
// if the controller must act first. It is not expanded either if the volume is smaller than the claim's capacity. If the volume is smaller
// on this node, it is expanded.
func TestGrown(t *testing.T) {
	pending := []v1.PersistentVolumeClaimCondition{{Type: v1.PersistentVolumeClaimFileSystemResizePending, Status: v1.ConditionTrue}}
	for _, tt := range []struct {
		has, to    string
		size       int64
		status     v1.ClaimResourceStatus
		conditions []v1.PersistentVolumeClaimCondition
		want       bool
	}{
		{"1Gi", "2Gi", 0, "", nil, true}, {"1Gi", "2Gi", 2 << 30, v1.PersistentVolumeClaimNodeResizePending, nil, true}, {"1Gi", "2Gi", 0, v1.PersistentVolumeClaimControllerResizeInProgress, nil, false},
		{"2Gi", "2Gi", 0, "", nil, false}, {"2Gi", "2Gi", 2 << 30, "", nil, false}, {"2Gi", "2Gi", 2<<30 - 1, "", nil, true}, {"2Gi", "2Gi", 1, v1.PersistentVolumeClaimControllerResizeInProgress, nil, false},
		{"2Gi", "2Gi", 2 << 30, v1.PersistentVolumeClaimNodeResizePending, nil, true}, {"2Gi", "2Gi", 0, v1.PersistentVolumeClaimNodeResizeInProgress, pending, true},
		{"2Gi", "2Gi", 0, "", pending, true}, {"2Gi", "2Gi", 1, v1.PersistentVolumeClaimNodeResizeInfeasible, pending, false}, {"2Gi", "1Gi", 1, v1.PersistentVolumeClaimNodeResizePending, pending, false},
	} {
		claim := &v1.PersistentVolumeClaim{Status: v1.PersistentVolumeClaimStatus{Capacity: v1.ResourceList{v1.ResourceStorage: resource.MustParse(tt.has)}, Conditions: tt.conditions}}
		if tt.status != "" {
			claim.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{v1.ResourceStorage: tt.status}
		}
		v := Volume{claim: claim}
		v.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse(tt.to)}
		if got := sizeToExpand(v, tt.size); (got != nil) != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

// A slowUnmount is a driver whose unmounts wait.
type slowUnmount struct {
	adoptingDriver
	began, end chan struct{}
}

func (s *slowUnmount) Unpublish(_ context.Context, _ Volume, _ types.UID, path string) error {
	s.began <- struct{}{}
	<-s.end
	return syscall.Unmount(path, 0)
}

// TestNoAdoptionDuringUnmount checks that a change of an object does not register a volume with its driver while the volume is unmounted.
func TestNoAdoptionDuringUnmount(t *testing.T) {
	s, o := openStore(t, t.TempDir()), &objects{}
	defer s.Close()
	d := &slowUnmount{began: make(chan struct{}), end: make(chan struct{})}
	o.bound("c", v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}})
	k, p := newMounter(t, t.TempDir(), s, o, d), podWith("p", "c")
	path, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], "")
	requireNoError(t, err)
	requireNoError(t, os.MkdirAll(path, 0o755))
	requireNoError(t, syscall.Mount("none", path, "tmpfs", 0, ""))
	requireNoError(t, k.Refresh(p, &p.Spec.Volumes[0], ""))
	ended := make(chan error, 1)
	go func() { ended <- k.TearDown(t.Context(), p.UID) }()
	<-d.began
	requireNoError(t, k.Refresh(p, &p.Spec.Volumes[0], ""))
	close(d.end)
	requireNoError(t, <-ended)
	requireNoError(t, k.Refresh(p, &p.Spec.Volumes[0], ""))
	if len(d.adopted) != 1 {
		t.Errorf("adopted %d times, not only before the unmount", len(d.adopted))
	}
}
