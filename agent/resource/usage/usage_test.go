package usage

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podtest"
	"github.com/islet-edge/islet/metrics/cgroup"
	"github.com/islet-edge/islet/metrics/disk"
	"github.com/islet-edge/islet/metrics/host"
	"github.com/islet-edge/islet/metrics/process"
	"github.com/islet-edge/islet/metrics/sample"
)

// runtime is a fake runtime with two containers. The container c1 runs on the host, and v1 in a virtual machine.
type runtime struct{ asked int }

func (r *runtime) ListPodSandbox(context.Context, *api.ListPodSandboxRequest) (*api.ListPodSandboxResponse, error) {
	return &api.ListPodSandboxResponse{}, nil
}

// noContainers is a fake runtime without containers.
type noContainers struct{ runtime }

func (*noContainers) ListContainers(context.Context, *api.ListContainersRequest) (*api.ListContainersResponse, error) {
	return &api.ListContainersResponse{}, nil
}

func (r *runtime) labels(pod string) map[string]string {
	return map[string]string{keys.PodName: pod, keys.PodNamespace: "default", keys.PodUID: "uid-" + pod, keys.ContainerName: "main"}
}

func (r *runtime) ListContainers(context.Context, *api.ListContainersRequest) (*api.ListContainersResponse, error) {
	return &api.ListContainersResponse{Containers: []*api.Container{
		{Id: "v1", PodSandboxId: "sv", Labels: r.labels("virtual"), Image: &api.ImageSpec{Image: "kernel:1"}},
		{Id: "c1", PodSandboxId: "s1", Labels: r.labels("plain"), Image: &api.ImageSpec{Image: "sha256:1", UserSpecifiedImage: "web:1"}},
	}}, nil
}

func (r *runtime) ListContainerStats(context.Context, *api.ListContainerStatsRequest) (*api.ListContainerStatsResponse, error) {
	r.asked++
	n := func(v uint64) *api.UInt64Value { return &api.UInt64Value{Value: v} }
	layer := &api.FilesystemUsage{FsId: &api.FilesystemIdentifier{Mountpoint: "/"}, UsedBytes: n(4096), InodesUsed: n(2)}
	return &api.ListContainerStatsResponse{Stats: []*api.ContainerStats{
		{Attributes: &api.ContainerAttributes{Id: "c1"}, WritableLayer: layer},
		{Attributes: &api.ContainerAttributes{Id: "v1"}, WritableLayer: layer, Cpu: &api.CpuUsage{
			Timestamp: 5e9, UsageCoreNanoSeconds: n(7e9),
		},
			Memory: &api.MemoryUsage{WorkingSetBytes: n(77), UsageBytes: n(99)}},
	}}, nil
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// node returns a node with two pods. The pod "plain" has a cgroup, and the other pod runs in a virtual machine without one. The volume and
// the logs of the pod "plain" are files.
func node(t testing.TB) (*Usage, *runtime) {
	root, dir := t.TempDir(), t.TempDir()
	for _, path := range []string{
		"", "/kubepods", "/kubepods/poduid-plain", "/kubepods/poduid-plain/c1", "/kubepods/podother",
		"/kubepods/podother/foreign",
	} {
		write(t, filepath.Join(root, "memory", path, "memory.usage_in_bytes"), "1000\n")
		write(t, filepath.Join(root, "memory", path, "cgroup.procs"), "")
		write(t, filepath.Join(root, "cpuacct", path, "cpuacct.usage"), "2000000000\n")
	}
	write(t, filepath.Join(dir, "pods/uid-plain/volumes/kubernetes.io~empty-dir/scratch/file"), string(make([]byte, 5000)))
	write(t, filepath.Join(dir, "logs/default_plain_uid-plain/main/0.log"), string(make([]byte, 9000)))
	write(t, filepath.Join(dir, "logs/default_plain_uid-plain/init/0.log"), string(make([]byte, 90_000))) // log of an exited container
	write(t, filepath.Join(dir, "pods/uid-plain/etc-hosts"), string(make([]byte, 1<<20)))
	write(t, filepath.Join(dir, "pods/uid-plain/containers/main/0"), string(make([]byte, 2<<20)))
	rt := &runtime{}
	pod := podtest.New("plain", podtest.UID("uid-plain"), podtest.Volumes(
		v1.Volume{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		v1.Volume{Name: "late", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{}}},
		v1.Volume{Name: "scratch", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/"}}}))
	pod.Status = v1.PodStatus{StartTime: &metav1.Time{Time: time.Unix(100, 0)}, ContainerStatuses: []v1.ContainerStatus{{
		Name: "main", ContainerID: "islet://c1",
		State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.Unix(200, 0)}}}}}
	return New(Config{NodeName: "pi", Runtime: rt,
		Pods: func(f func(*v1.Pod, *v1.PodStatus)) { f(pod, &pod.Status) }, Host: host.New(host.Config{}),
		Trees: &disk.Trees{Age: time.Minute},
		Root:  dir, LogsDir: filepath.Join(dir, "logs"), System: map[string]string{"pods": "/kubepods"},
		Sampler: sample.New(sample.Config{
			Cgroups: cgroup.NewRecent(cgroup.NewReader(root), time.Second), Process: process.Reader{},
			Pods: "/kubepods", MaxAge: time.Hour,
		})}), rt
}

func TestSummary(t *testing.T) {
	u, _ := node(t)
	sum, err := u.Summary(t.Context(), false)
	if err != nil || len(sum.Pods) != 2 {
		t.Fatalf("%v %+v", err, sum)
	}
	plain, virtual := sum.Pods[0], sum.Pods[1]
	c := plain.Containers[0]
	switch {
	case plain.PodRef.Name != "plain" || plain.StartTime.Unix() != 100 || c.StartTime.Unix() != 200:
		t.Errorf("names and times: %+v", plain)
	case *plain.CPU.UsageCoreNanoSeconds != 2e9 || *c.Memory.UsageBytes != 1000 || c.Memory.AvailableBytes != nil:
		t.Errorf("of its cgroups: %+v", plain)
	case len(plain.VolumeStats) != 1 || plain.VolumeStats[0].Name != "scratch" || *plain.VolumeStats[0].InodesUsed != 2:
		t.Errorf("volumes: %+v", plain.VolumeStats)
	case *c.Rootfs.UsedBytes != 4096 || *c.Logs.UsedBytes < 9000 || *c.Logs.InodesUsed != 2:
		t.Errorf("files of a container: %+v", c)
	case *plain.EphemeralStorage.UsedBytes/100_000 !=
		(4096+*c.Logs.UsedBytes+*plain.VolumeStats[0].UsedBytes+90_000+1<<20+2<<20)/100_000 || *plain.EphemeralStorage.CapacityBytes == 0:
		t.Errorf("in all: %+v", plain.EphemeralStorage)
	case *virtual.CPU.UsageCoreNanoSeconds != 7e9 || *virtual.Containers[0].Memory.WorkingSetBytes != 77:
		t.Errorf("the figures of the runtime: %+v", virtual)
	case len(sum.Node.SystemContainers) != 1 || sum.Node.SystemContainers[0].Name != "pods" ||
		sum.Node.Fs == nil || sum.Node.StartTime.IsZero():
		t.Errorf("node: %+v", sum.Node)
	}
}

// TestMisc checks that the cgroup in systemCgroups is a system container with its own statistics. Its name may have slashes. The root
// cgroup is not a system container. Subjects lists the cgroup of the pods only once, even if systemCgroups is the same cgroup.
func TestMisc(t *testing.T) {
	root := t.TempDir()
	for path, bytes := range map[string]string{"": "9000", "/kubepods": "1000", "/others": "5000"} {
		write(t, filepath.Join(root, "memory", path, "memory.usage_in_bytes"), bytes+"\n")
		write(t, filepath.Join(root, "memory", path, "cgroup.procs"), "")
		write(t, filepath.Join(root, "cpuacct", path, "cpuacct.usage"), "2000000000\n")
	}
	for misc, want := range map[string]string{
		"": "pods 1000", "/": "pods 1000", "others/": "misc 5000 pods 1000", "/others": "misc 5000 pods 1000",
		"/kubepods": "misc 1000 pods 1000", "/none": "pods 1000",
	} {
		u := NewForMachine(Config{Runtime: &noContainers{}, Pods: func(func(*v1.Pod, *v1.PodStatus)) {}},
			cgroup.NewRecent(cgroup.NewReader(root), time.Second), "/kubepods", misc, -1)
		sum, err := u.Summary(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range sum.Node.SystemContainers {
			got = append(got, fmt.Sprint(c.Name, " ", *c.Memory.UsageBytes))
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("systemCgroups %q: %q, want %q", misc, text, want)
		}
		subjects, err := u.Subjects(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		at := map[string]int{}
		for _, s := range subjects {
			at[s.Path]++
		}
		if at["/"] != 1 || at["/kubepods"] != 1 || at["/others"] != strings.Count(want, "5000") {
			t.Errorf("systemCgroups %q: cgroups %v", misc, at)
		}
	}
}

// TestShort checks that a summary with only CPU and memory does not measure directories.
func TestShort(t *testing.T) {
	u, _ := node(t)
	sum, err := u.Summary(t.Context(), true)
	if err != nil || len(sum.Pods) != 2 {
		t.Fatalf("%v %+v", err, sum)
	}
	p := sum.Pods[0]
	if p.EphemeralStorage != nil || p.VolumeStats != nil || p.Containers[0].Logs != nil ||
		p.Containers[0].Rootfs != nil || sum.Node.Fs != nil || p.CPU == nil || p.Swap == nil {
		t.Errorf("got %+v", p)
	}
}

// TestLook checks that StreamSummary returns the same pods as Summary. It returns them one after the other in the same memory.
func TestLook(t *testing.T) {
	u, _ := node(t)
	free := regexp.MustCompile(`"(availableBytes|inodesFree)":\d+,`) // other programs write to the disk too
	for _, short := range []bool{true, false} {
		sum, err := u.Summary(t.Context(), short)
		if err != nil {
			t.Fatal(err)
		}
		look, err := u.StreamSummary(t.Context(), short)
		if err != nil {
			t.Fatal(err)
		}
		text := func(p *stats.PodStats) string {
			if p.EphemeralStorage != nil {
				p.EphemeralStorage.Time = metav1.Time{} // this field is the current time
			}
			b, err := json.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			return free.ReplaceAllString(string(b), "")
		}
		i := 0
		for p := range look.Pods {
			if got, want := text(p), text(&sum.Pods[i]); got != want {
				t.Errorf("short %v: got\n%s\nwant\n%s", short, got, want)
			}
			i++
		}
		if i != len(sum.Pods) || look.Node.NodeName != "pi" {
			t.Errorf("%d pods of %q, want %d", i, look.Node.NodeName, len(sum.Pods))
		}
	}
}

func TestSubjects(t *testing.T) {
	u, rt := node(t)
	got, err := u.Subjects(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range got {
		names = append(names, s.Path+s.ID+" "+s.Namespace+"/"+s.Pod+"/"+s.Container+" "+s.Image)
	}
	want := []string{
		"/ // ", "/kubepods // ", "/kubepods/poduid-plain default/plain/ ",
		"/kubepods/poduid-plain/c1 default/plain/main web:1", "v1 default/virtual/main kernel:1",
	}
	if len(names) != len(want) {
		t.Fatalf("got %q", names)
	}
	for i := range want {
		if names[i] != want[i] {
			t.Errorf("got %q, want %q", names[i], want[i])
		}
	}
	if c := got[3]; c.Started.Unix() != 200 || len(c.Disks) != 1 || c.Disks[0].Used != 4096 ||
		c.Disks[0].Limit == 0 || got[4].CPU != 7*time.Second {
		t.Errorf("%+v %+v", c, got[4].Group)
	}
	if pod := got[2]; pod.Name != "" || pod.Sandbox != "s1" {
		t.Errorf("the pod's cgroup has the name %q, its network %q", pod.Name, pod.Sandbox)
	}
	if rt.asked != 1 {
		t.Errorf("the runtime was asked %d times", rt.asked)
	}
}

// TestBoard checks that the board lists the external network interfaces under any name.
func TestBoard(t *testing.T) {
	u, _ := node(t)
	var want []string
	for _, i := range process.ExternalInterfaces("/sys", process.Reader{}.Network(0)) {
		want = append(want, i.Name)
	}
	if got := u.Board().Links; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := New(Config{}).Board(); len(got.Links) > 0 {
		t.Errorf("of no machine: %q", got.Links)
	}
}

// TestSwap checks that a container that must not use swap has no available swap. For a container without a limit, available swap is not
// reported.
func TestSwap(t *testing.T) {
	n := nodeAnswer{Usage: New(Config{}), arena: new(arena)}
	for _, x := range []struct {
		d    cgroup.Details
		want int64 // less than 0: not reported
	}{
		{cgroup.Details{}, -1}, {cgroup.Details{SwapLimited: true}, 0}, {
			cgroup.Details{SwapLimited: true, SwapMax: 10, Figures: cgroup.Figures{Swap: 4}}, 6,
		},
		{
			cgroup.Details{SwapLimited: true, SwapMax: 3, Figures: cgroup.Figures{Swap: 4}}, 0,
		}, {cgroup.Details{SwapLimit: 50, Figures: cgroup.Figures{Limit: 40}}, -1},
	} {
		got := n.swapOf(&sample.Group{Reading: cgroup.Reading{Details: &x.d}}).SwapAvailableBytes
		if got == nil && x.want >= 0 || got != nil && int64(*got) != x.want {
			t.Errorf("%+v: %v, want %d", x.d, got, x.want)
		}
	}
}

// TestNodeMemory checks that the memory usage of the node includes the page cache. The working set and the available memory add up to the
// total memory.
func TestNodeMemory(t *testing.T) {
	for name, root := range map[string]uint64{"with page cache": 1 << 50, "less than the kernel says": 1} {
		u, _ := node(t)
		n := nodeAnswer{Usage: u, arena: new(arena), short: true, j: &joinedFigures{sample: &sample.Sample{Groups: []sample.Group{
			{Path: "/", Reading: cgroup.Reading{Details: &cgroup.Details{Figures: cgroup.Figures{Memory: root}}}}}}}}
		var out stats.NodeStats
		if err := n.measureNode(t.Context(), &out); err != nil {
			t.Fatal(err)
		}
		now, err := u.c.Host.Usage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		m := out.Memory
		if *m.UsageBytes != max(root, *m.WorkingSetBytes) || *m.WorkingSetBytes+*m.AvailableBytes != now.Memory.Total {
			t.Errorf("%s: %d used, working set %d, %d available of %d", name, *m.UsageBytes,
				*m.WorkingSetBytes, *m.AvailableBytes, now.Memory.Total)
		}
	}
}

// TestIO checks that reads and writes of pods and containers are counted once. The result is empty if no cgroup has I/O counters, because
// the kernel may not count reads and writes.
func TestIO(t *testing.T) {
	u, rt := node(t)
	if all, err := u.IO(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("without I/O accounting: %v, %v", all, err)
	}
	root := t.TempDir()
	for path, bytes := range map[string]string{
		"/kubepods/poduid-plain":    "0:999 Read 1000\n0:999 Write 50\n0:998 Read 3\n",
		"/kubepods/poduid-plain/c1": "",
	} {
		write(t, filepath.Join(root, "memory", path, "memory.usage_in_bytes"), "1000\n")
		write(t, filepath.Join(root, "memory", path, "cgroup.procs"), "")
		write(t, filepath.Join(root, "blkio", path, "blkio.throttle.io_service_bytes"), bytes)
	}
	u = New(Config{
		NodeName: "pi", Runtime: rt, Pods: u.c.Pods,
		Sampler: sample.New(sample.Config{
			Cgroups: cgroup.NewRecent(cgroup.NewReader(root), time.Second), Process: process.Reader{},
			Pods: "/kubepods", MaxAge: time.Hour,
		}),
	})
	all, err := u.IO(t.Context())
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	if p := all[0]; p.UID != "uid-plain" || p.Container != "" || p.Read != 1003 || p.Written != 50 || p.At.IsZero() {
		t.Errorf("of the pod: %+v", p)
	}
	if c := all[1]; c.UID != "uid-plain" || c.Container != "main" || c.Read+c.Written != 0 {
		t.Errorf("of the container: %+v", c)
	}
}
