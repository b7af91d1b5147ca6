package garbage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/eventtest"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/internal/podtest"
	"github.com/islet-edge/islet/runtime/cri"
)

// A world is an in-memory node with a disk, images, pods and containers.
type world struct {
	cri.Images
	cri.Runtime

	mu         sync.Mutex
	images     []*api.Image
	total      uint64
	other      uint64 // bytes of other files
	junk       uint64 // bytes of data that belongs to no image
	pods       []*v1.Pod
	containers []*api.Container
	status     *api.StatusResponse
	broken     error
	stuffed    bool // the disk is full until an image is removed
	asked      map[string]int
	offline    bool
	events     []string
	meta       map[string]string
	writes     int
	removed    []string
	dropped    int
	onRemove   func()
}

func (w *world) did(call string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asked == nil {
		w.asked = map[string]int{}
	}
	w.asked[call]++
	return w.broken
}

func (w *world) ListImages(context.Context, *api.ListImagesRequest) (*api.ListImagesResponse, error) {
	return &api.ListImagesResponse{Images: slices.Clone(w.images)}, w.did("images")
}

func (w *world) ImageStatus(_ context.Context, q *api.ImageStatusRequest) (*api.ImageStatusResponse, error) {
	if err := podspec.CheckImage(q.Image.Image); err != nil {
		return nil, err
	}
	full := podspec.FullImage(q.Image.Image)
	for _, i := range w.images {
		if i.Id == full || slices.Contains(i.RepoTags, full) {
			return &api.ImageStatusResponse{Image: i}, w.did("image")
		}
	}
	return &api.ImageStatusResponse{}, w.did("image")
}

func (w *world) RemoveImage(_ context.Context, q *api.RemoveImageRequest) (*api.RemoveImageResponse, error) {
	if err := w.did("remove"); err != nil {
		return nil, err
	}
	w.removed = append(w.removed, q.Image.Image)
	w.images = slices.DeleteFunc(w.images, func(i *api.Image) bool { return i.Id == q.Image.Image })
	w.stuffed = false
	if w.onRemove != nil {
		w.onRemove()
	}
	return &api.RemoveImageResponse{}, nil
}

func (w *world) Reclaim(context.Context) error {
	if w.stuffed {
		return errors.Join(unix.ENOSPC, w.did("reclaim"))
	}
	w.junk = 0
	return w.did("reclaim")
}

func (w *world) ListContainers(context.Context, *api.ListContainersRequest) (*api.ListContainersResponse, error) {
	return &api.ListContainersResponse{Containers: w.containers}, w.did("containers")
}

func (w *world) ContainerStatus(_ context.Context, q *api.ContainerStatusRequest) (*api.ContainerStatusResponse, error) {
	return &api.ContainerStatusResponse{Status: &api.ContainerStatus{Metadata: &api.ContainerMetadata{Name: q.ContainerId}, Mounts: []*api.Mount{{}, {Image: &api.ImageSpec{Image: "mounted:1"}}}}}, w.did("container")
}

func (w *world) Status(context.Context, *api.StatusRequest) (*api.StatusResponse, error) {
	return w.status, w.did("status")
}

func (w *world) DropLayers(context.Context) error {
	w.dropped++
	return nil
}

func (w *world) disk(context.Context) (Disk, error) {
	used := w.other + w.junk
	for _, i := range w.images {
		used += i.Size
	}
	return Disk{Total: w.total, Free: w.total - used}, w.did("disk")
}

func (w *world) record(e eventtest.Event) { w.events = append(w.events, e.Reason) }

func (w *world) Meta(_ context.Context, key string) (string, bool, error) {
	v, ok := w.meta[key]
	return v, ok, nil
}

func (w *world) SetMeta(_ context.Context, key, value string) error {
	if w.meta == nil {
		w.meta = map[string]string{}
	}
	w.meta[key] = value
	w.writes++
	return nil
}

// image adds an image with the given size.
func (w *world) image(n int, size uint64, tags ...string) {
	for i := range tags {
		tags[i] = podspec.FullImage(tags[i])
	}
	w.images = append(w.images, &api.Image{Id: id(n), RepoTags: tags, Size: size})
}

func pod(name string, phase v1.PodPhase, images ...string) *v1.Pod {
	p := podtest.New(name, podtest.Namespace("ns"), podtest.UID("uid-"+name), podtest.Source(keys.SourceAPI),
		podtest.Phase(phase), podtest.Containers())
	for _, i := range images {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Image: i})
	}
	return p
}

func (w *world) garbage(change ...func(*Config)) *Garbage {
	c := Config{Images: w, Runtime: w, Pods: func() []*v1.Pod { return w.pods }, Disk: w.disk, High: 85, Low: 80, MinAge: 2 * time.Minute,
		Offline: func() bool { return w.offline }, Meta: w, Events: eventtest.Sink(w.record), Now: time.Now, Log: slog.New(slog.DiscardHandler),
		ClockSynced: func() bool { return true }}
	for _, f := range change {
		f(&c)
	}
	return New(c)
}

// run runs a Garbage for some time.
func run(t *testing.T, g *Garbage, d time.Duration) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), d)
	defer stop()
	if err := g.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func (w *world) remaining() (out []int) {
	for _, i := range w.images {
		n := 0
		fmt.Sscanf(i.Id[7:23], "%x", &n)
		out = append(out, n)
	}
	return out
}

// TestFullDisk checks that images are removed when the disk is full. The image that has been unused for the longest time is removed first.
// No more images are removed than necessary.
func TestFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{total: 1000, other: 500}
		w.image(1, 100, "wanted:1")
		w.image(2, 100, "a:1")
		w.image(3, 100, "b:1")
		w.pods = []*v1.Pod{pod("p", v1.PodRunning, "wanted:1", "a:1")}
		g := w.garbage()
		run(t, g, Period+time.Second)
		w.pods = w.pods[:0]
		w.pods = append(w.pods, pod("p", v1.PodRunning, "wanted:1"))
		run(t, g, Period+time.Second) // a:1 is no longer in use, and b:1 never was in use
		if got := w.remaining(); len(got) != 3 || w.asked["containers"]+w.asked["reclaim"] > 0 {
			t.Fatalf("left %v, calls %v", got, w.asked)
		}
		if got := collected(t, g); got != "map[]" {
			t.Errorf("counted before any went: %s", got)
		}
		w.image(4, 100, "late:1") // the disk is now 90 % full
		run(t, g, Period+time.Second)
		if got := collected(t, g); got != "map[space:1]" {
			t.Errorf("counted %s", got)
		}
		if got := w.remaining(); !slices.Equal(got, []int{1, 2, 4}) {
			t.Errorf("left %v", got)
		}
		if len(w.events) > 0 {
			t.Errorf("events %v", w.events)
		}
	})
}

// TestIdle checks the cost of a node that needs no image collection. It reads the disk usage and lists the images once a period, and writes
// nothing. If no thresholds are configured, it reads nothing either.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{total: 1000}
		w.image(1, 100, "wanted:1")
		w.pods = []*v1.Pod{pod("p", v1.PodRunning, "wanted:1")}
		g := w.garbage(func(c *Config) { c.MaxAge = day })
		run(t, g, Period+time.Second)
		w.asked, w.writes = nil, 0
		run(t, g, 10*Period+time.Second)
		if got := fmt.Sprint(w.asked); got != "map[disk:10 images:10]" || w.writes > 0 {
			t.Errorf("calls %s, %d writes", got, w.writes)
		}
		w.asked = nil
		run(t, w.garbage(func(c *Config) { c.High = 100 }), day)
		if len(w.asked) > 0 {
			t.Errorf("calls %v", w.asked)
		}
	})
}

// TestMaxAge checks that an image is removed after a long time without use, even if the disk has enough space. The agent's restarts do not
// reset this time. The image is not removed while flash writes must be deferred.
func TestMaxAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{total: 10000}
		w.image(1, 100, "wanted:1")
		w.image(2, 100, "a:1")
		wait := true
		age := func(c *Config) { c.MaxAge, c.SaveWrites = 2*day, func() bool { return wait } }
		w.pods = []*v1.Pod{pod("p", v1.PodRunning, "wanted:1"), pod("q", v1.PodRunning, "a:1")}
		run(t, w.garbage(age), day)
		w.pods = w.pods[:1]
		for range 3 { // each iteration is a restart
			run(t, w.garbage(age), day)
		}
		if got := w.remaining(); len(got) != 2 {
			t.Fatalf("left %v, although the removal must wait", got)
		}
		wait = false
		g := w.garbage(age)
		run(t, g, time.Hour)
		if got := collected(t, g); got != "map[age:1]" {
			t.Errorf("counted %s", got)
		}
		if got := w.remaining(); !slices.Equal(got, []int{1}) {
			t.Errorf("left %v", got)
		}
		if w.writes > 6 {
			t.Errorf("%d writes", w.writes)
		}
	})
}

// TestNothingToFree checks that an event reports when no space could be freed. The event is not repeated every five minutes.
func TestNothingToFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{total: 1000, other: 900, junk: 50}
		w.image(1, 10, "wanted:1")
		w.pods = []*v1.Pod{pod("p", v1.PodRunning, "wanted:1")}
		g := w.garbage()
		run(t, g, Period+time.Second)
		if got := strings.Join(w.events, " "); got != "FreeDiskSpaceFailed" || w.junk > 0 {
			t.Errorf("first: %s, %d of junk", got, w.junk)
		}
		run(t, g, 11*Period+time.Second)
		if got := strings.Join(w.events, " "); got != "FreeDiskSpaceFailed ImageGCFailed FreeDiskSpaceFailed ImageGCFailed" {
			t.Errorf("in an hour: %s", got)
		}
		w.other, w.events = 100, nil
		run(t, g, Period+time.Second)
		w.total, w.other, w.images = 0, 0, nil
		run(t, g, 2*Period+time.Second)
		if got := strings.Join(w.events, " "); got != "InvalidDiskCapacity ImageGCFailed" {
			t.Errorf("no capacity: %s", got)
		}
	})
}

// TestNeeds checks each reason to keep an image: a volume of a pod, a container, the sandbox, or a static pod.
func TestNeeds(t *testing.T) {
	w := &world{total: 100, status: &api.StatusResponse{Info: map[string]string{"config": `{"sandboxImage":"pause:3"}`}}}
	for n, tag := range []string{"", "later:1", "mounted:1", "pause:3", "over:1", "static:1", "ran:1", "made:1", "nobody:1"} {
		if n > 0 {
			w.image(n, 1, tag)
		}
	}
	later := pod("later", v1.PodPending)
	later.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "later:1"}}}}
	static := pod("static", v1.PodFailed, "static:1")
	static.Annotations[keys.ConfigSource] = keys.SourceFile
	ran := pod("ran", v1.PodRunning, "moved:1")
	ran.Status.ContainerStatuses = []v1.ContainerStatus{{ImageID: id(6)}}
	// No image is kept for an invalid reference, and such a reference does not prevent the removal of other images.
	wrong := pod("wrong", v1.PodPending, "Not an image")
	wrong.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "https://nor:this"}}}}
	w.pods = []*v1.Pod{later, pod("over", v1.PodSucceeded, "over:1"), static, ran, wrong}
	w.containers = []*api.Container{{Id: "foreign", Metadata: &api.ContainerMetadata{Name: "foreign"}, ImageId: id(7), Image: &api.ImageSpec{Image: "gone"}}}
	g := w.garbage(func(c *Config) { c.Remote = true })

	w.offline = true
	out := g.Prune(t.Context(), true)
	if len(out.Removed) != 1 || out.Removed[0].ID != id(8) || len(out.Kept) != 7 || len(w.removed) > 0 {
		t.Errorf("offline: %+v", out)
	}
	w.offline = false
	out = g.Prune(t.Context(), true)
	if len(out.Removed) != 2 || out.Removed[0].ID != id(4) || out.Removed[1].ID != id(8) {
		t.Errorf("online: %+v", out)
	}
	who, err := g.ImageUser(t.Context(), id(2))
	if who != "container foreign" || err != nil {
		t.Errorf("needed by %q, %v", who, err)
	}
	if who, err := g.ImageUser(t.Context(), id(8)); who != "" || err != nil {
		t.Errorf("needed by %q, %v", who, err)
	}
	users, err := g.ImageUsers(t.Context())
	if err != nil || !slices.Equal(users[id(1)], []string{"ns/later"}) || !slices.Equal(users[id(7)], []string{"container foreign"}) || len(users[id(8)]) > 0 {
		t.Errorf("users %v, %v", users, err)
	}
	// If a pod is added during the removal of images, its image is not removed.
	w.onRemove = func() { w.pods = append(w.pods, pod("new", v1.PodPending, "nobody:1")) }
	out = g.Prune(t.Context(), false)
	if len(w.removed) != 1 || w.removed[0] != id(4) || out.Error != "" {
		t.Errorf("removed %v; %+v", w.removed, out)
	}
	w.broken = errors.New("no answer")
	if out := g.Prune(t.Context(), false); out.Error == "" || len(out.Removed) > 0 {
		t.Errorf("broken: %+v", out)
	}
}

// TestReclaim checks that an eviction removes all images that are neither in use nor new.
func TestReclaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{total: 1000, junk: 5}
		w.image(1, 1, "a:1")
		w.image(2, 1, "b:1")
		w.pods = []*v1.Pod{pod("p", v1.PodRunning, "b:1")}
		g := w.garbage()
		run(t, g, Period+time.Second)
		w.image(3, 1, "new:1")
		if err := g.ReclaimImages(t.Context()); err != nil || w.junk > 0 {
			t.Errorf("%v, %d of junk", err, w.junk)
		}
		if got := w.remaining(); !slices.Equal(got, []int{2, 3}) {
			t.Errorf("left %v", got)
		}
		time.Sleep(3 * time.Minute)
		if err := g.ReclaimImages(t.Context()); err != nil {
			t.Error(err)
		}
		if got := collected(t, g); got != "map[space:2]" {
			t.Errorf("counted %s", got)
		}
		if got := w.remaining(); !slices.Equal(got, []int{2}) {
			t.Errorf("left %v", got)
		}
	})
}

type view map[types.UID]plan.Observed

func (v view) UIDs() (out []types.UID) {
	for uid := range v {
		out = append(out, uid)
	}
	return out
}

func (v view) Pod(uid types.UID) plan.Observed { return v[uid] }

func TestReclaimContainers(t *testing.T) {
	v := view{
		"a": {Containers: []plan.Container{{ID: "a0", Name: "c", State: plan.Exited}, {ID: "a1", Name: "c", Attempt: 1, State: plan.Exited}, {ID: "a2", Name: "c", Attempt: 2, State: plan.Running}}},
		"b": {Containers: []plan.Container{{ID: "b0", Name: "c", State: plan.Exited}, {ID: "b1", Name: "c", Attempt: 1, State: plan.Exited}}},
		"c": {Containers: []plan.Container{{ID: "c0", Name: "c", State: plan.Exited}, {ID: "c1", Name: "d", Attempt: 1, State: plan.Running}}},
	}
	w := &world{}
	var removed []string
	swept := 0
	g := w.garbage(func(c *Config) {
		c.Dead = DeadContainers{View: v, Sweep: func(context.Context) { swept++ }, Remove: func(_ context.Context, uid types.UID, c plan.Container) error {
			removed = append(removed, c.ID)
			return errors.New("busy")
		}}
	})
	err := g.ReclaimContainers(t.Context())
	slices.Sort(removed)
	if !slices.Equal(removed, []string{"a0", "a1"}) || swept != 1 || w.dropped != 1 || err == nil || !strings.Contains(err.Error(), "remove dead container c of pod a: busy") {
		t.Errorf("removed %v, swept %d, dropped %d, %v", removed, swept, w.dropped, err)
	}
}

func TestBounds(t *testing.T) {
	v := view{
		"a": {Containers: []plan.Container{{Name: "c", State: plan.Exited}, {Name: "c", State: plan.Exited}, {Name: "d", State: plan.Exited}}},
		"b": {Containers: []plan.Container{{Name: "c", State: plan.Exited}, {Name: "d", State: plan.Running}}},
	}
	for _, c := range []struct {
		b    Bounds
		more int
	}{
		{Bounds{PerContainer: 1, Total: -1}, 0}, {Bounds{PerContainer: 3, Total: -1}, 2}, {Bounds{PerContainer: 0, Total: -1}, -1}, {Bounds{PerContainer: -1, Total: -1}, 1<<31 - 1},
		{Bounds{PerContainer: 5, Total: 6}, 1}, {Bounds{PerContainer: 5, Total: 2}, -1}, {Bounds{PerContainer: 1, Total: 100}, 0},
	} {
		c.b.MinAge = time.Minute
		if got := c.b.ForPlans(v)(); got != (plan.DeadLimit{More: c.more, MinAge: time.Minute}) {
			t.Errorf("%+v: %+v", c.b, got)
		}
	}
}
