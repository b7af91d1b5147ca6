package eviction

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/islet-edge/islet/internal/demand"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podtest"
)

// aPod returns a pod with requests for memory and disk space. Each of them may be empty.
func aPod(name, memory, disk string, priority int32) *v1.Pod {
	requests := podtest.List(map[v1.ResourceName]string{v1.ResourceMemory: memory, v1.ResourceEphemeralStorage: disk})
	return podtest.New(name, podtest.Source(keys.SourceAPI), podtest.Priority(priority), podtest.Requests(requests))
}

func static(p *v1.Pod) *v1.Pod {
	podtest.Source(keys.SourceFile)(p)
	return p
}

func newCandidate(p *v1.Pod, memory, processes uint64) Candidate {
	return Candidate{p, &stats.PodStats{PodRef: stats.PodReference{UID: string(p.UID)},
		Memory: &stats.MemoryStats{WorkingSetBytes: &memory}, ProcessStats: &stats.ProcessStats{ProcessCount: &processes},
		Containers: []stats.ContainerStats{{Name: "c", Memory: &stats.MemoryStats{WorkingSetBytes: &memory}}}}}
}

// This helper returns a candidate with the given sizes of its writable layer, logs and emptyDir.
func writes(p *v1.Pod, layer, logs, volume uint64) Candidate {
	fs := func(n uint64) *stats.FsStats {
		files := n / 10
		return &stats.FsStats{UsedBytes: &n, InodesUsed: &files}
	}
	p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	return Candidate{p, &stats.PodStats{PodRef: stats.PodReference{UID: string(p.UID)}, EphemeralStorage: fs(layer + logs + volume),
		Containers:  []stats.ContainerStats{{Name: "c", Rootfs: fs(layer), Logs: fs(logs)}},
		VolumeStats: []stats.VolumeStats{{Name: "v", FsStats: *fs(volume)}}}}
}

func names(list []Candidate) string {
	var all []string
	for _, c := range list {
		all = append(all, c.Pod.Name)
	}
	return strings.Join(all, " ")
}

func TestRankMemory(t *testing.T) {
	list := []Candidate{
		newCandidate(aPod("within", "100", "", 0), 99, 0),
		newCandidate(aPod("within-low", "100", "", -5), 100, 0),
		newCandidate(aPod("above-high", "10", "", 10), 1000, 0),
		newCandidate(aPod("above", "10", "", 0), 100, 0),
		newCandidate(aPod("above-more", "500", "", 0), 600, 0),
		newCandidate(aPod("critical", "", "", demand.SystemCritical), 5000, 0),
		newCandidate(static(aPod("static", "", "", 0)), 9000, 0),
		newCandidate(static(aPod("static-critical", "", "", demand.SystemNodeCritical)), 9000, 0),
		{Pod: aPod("runs-nothing", "", "", 0)},
	}
	for _, s := range []Signal{Memory, PodsMemory} {
		if got, want := names(Rank(list, s, Disks{}, 90_000)), "above-more above above-high within-low within static"; got != want {
			t.Errorf("%s: %q, not %q", s, got, want)
		}
	}
}

// TestRankOwn checks that a static pod is evicted only if it uses a considerable part of the missing resource. Otherwise, if other files
// filled a disk, all static pods would be evicted without an effect.
func TestRankOwn(t *testing.T) {
	for _, c := range []struct {
		name    string
		c       Candidate
		s       Signal
		missing float64
		want    string
	}{
		{"disk, a tenth", writes(static(aPod("static", "", "", 0)), 40, 30, 30), ImageFs, 1000, "static"},
		{"disk, less", writes(static(aPod("static", "", "", 0)), 40, 30, 29), ImageFs, 1000, ""},
		{"inodes", writes(static(aPod("static", "", "", 0)), 1000, 0, 0), NodeInodes, 1001, ""},
		{"memory", newCandidate(static(aPod("static", "", "", 0)), 10, 0), Memory, 100, "api static"},
		{"memory, less", newCandidate(static(aPod("static", "", "", 0)), 9, 0), Memory, 100, "api"},
		{"asked for as much", newCandidate(static(aPod("static", "1k", "", 0)), 9, 0), Memory, 90, "api static"},
		{"processes", newCandidate(static(aPod("static", "", "", 0)), 0, 9), PIDs, 100, "api"},
		{"nothing is known", Candidate{Pod: static(aPod("static", "", "", 0))}, ImageFs, 1, ""},
	} {
		list := []Candidate{c.c, newCandidate(aPod("api", "", "", 0), 1, 1)}
		if got := names(Rank(list, c.s, Disks{Image: true, Container: true}, c.missing)); got != c.want {
			t.Errorf("%s: %q, not %q", c.name, got, c.want)
		}
	}
}

// TestRankForeign checks that a pod that uses only little of a disk is not evicted. It is evicted if many such pods together use enough.
func TestRankForeign(t *testing.T) {
	const mib = 1 << 20
	many := func(n int, each uint64) (list []Candidate) {
		for i := range n {
			list = append(list, writes(aPod(fmt.Sprint("p", i), "", "", 0), 0, each, 0))
		}
		return list
	}
	hosts := writes(aPod("hosts", "", "", 0), 0, 32<<10, 0)
	hosts.Stats.EphemeralStorage = &stats.FsStats{UsedBytes: new(uint64(300 * mib))}
	critical := writes(aPod("critical", "", "", demand.SystemCritical), 0, 900*mib, 0)
	threshold := Threshold{Signal: NodeFs, Value: Value{Part: .1}}
	for _, c := range []struct {
		name string
		list []Candidate
		free uint64 // of 10,000 MiB
		want int
	}{
		{"a foreign file", many(20, 32<<10), 100 * mib, 0},
		{"one that grows", many(20, 32<<10), 1000*mib - 1, 0},
		{"one with a pod of some size", append(many(20, 32<<10), writes(aPod("large", "", "", 0), 0, 0, 90*mib)), 100 * mib, 1},
		{"many", many(50, 20*mib), 100 * mib, 50},
		{"many and small ones", slices.Concat(many(50, 20*mib), many(50, 32<<10)), 100 * mib, 50},
		{"a critical one", append(many(20, 32<<10), critical), 100 * mib, 0},
		{"/etc/hosts", []Candidate{hosts}, 100 * mib, 1},
		{"nothing runs", []Candidate{{Pod: aPod("waits", "", "", 0)}}, 999 * mib, 0},
	} {
		o := Observations{NodeFs: {Free: c.free, Total: 10_000 * mib}}
		if got := Rank(c.list, NodeFs, Disks{Image: true, Container: true}, o.targetAmount(threshold)); len(got) != c.want {
			t.Errorf("%s: %d may go, not %d", c.name, len(got), c.want)
		}
	}
}

func TestMissing(t *testing.T) {
	o := Observations{NodeFs: {Free: 30, Total: 100}}
	for _, c := range []struct {
		t    Threshold
		want float64
	}{
		{Threshold{Signal: NodeFs, Value: Value{Part: .4}}, 10},
		{Threshold{Signal: NodeFs, Value: Value{Part: .4}, Reclaim: quantity("5")}, 15},
		{Threshold{Signal: NodeFs, Value: quantity("30")}, 0},
		{Threshold{Signal: NodeFs, Value: quantity("10")}, 0},
		{Threshold{Signal: Memory, Value: quantity("10")}, 10}, // the usage is unknown, so nothing counts as free
	} {
		if got := o.missingAmount(c.t); got != c.want {
			t.Errorf("%+v: %v, not %v", c.t, got, c.want)
		}
	}
}

func TestRankProcesses(t *testing.T) {
	list := []Candidate{newCandidate(aPod("few", "", "", 0), 0, 3), newCandidate(aPod("many", "", "", 0), 0, 300), newCandidate(aPod("low", "", "", -1), 0, 1)}
	if got, want := names(Rank(list, PIDs, Disks{}, 1000)), "low many few"; got != want {
		t.Errorf("%q, not %q", got, want)
	}
}

func TestRankDisk(t *testing.T) {
	list := []Candidate{
		writes(aPod("layer", "", "", 0), 1000, 10, 10),
		writes(aPod("logs", "", "", 0), 10, 1100, 10),
		writes(aPod("volume", "", "", 0), 10, 10, 1200),
		writes(aPod("asked", "", "5k", 0), 1500, 1500, 1500),
		{Pod: aPod("waits", "", "", 0)},
	}
	memory := writes(aPod("memory", "", "", 0), 21, 21, 5000)
	memory.Pod.Spec.Volumes[0].EmptyDir.Medium = v1.StorageMediumMemory
	claim := writes(aPod("claim", "", "", 0), 5, 5, 9000)
	for _, c := range []Candidate{memory, claim} { // the usage of other disks is ignored
		*c.Stats.EphemeralStorage.UsedBytes -= *c.Stats.VolumeStats[0].UsedBytes
		*c.Stats.EphemeralStorage.InodesUsed -= *c.Stats.VolumeStats[0].InodesUsed
	}
	claim.Pod.Spec.Volumes[0].VolumeSource = v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}
	list = append(list, memory, claim)
	one, images, apart := Disks{Image: true, Container: true}, Disks{}, Disks{Container: true}
	for _, c := range []struct {
		s    Signal
		d    Disks
		want string
	}{
		{NodeFs, one, "volume logs layer memory claim asked"},
		{ImageFs, one, "volume logs layer memory claim asked"},
		{ContainerFs, one, "volume logs layer memory claim asked"},
		{NodeFs, images, "volume logs memory layer claim asked"},
		{ImageFs, images, "layer memory logs volume claim asked"},
		{ContainerFs, images, "layer memory logs volume claim asked"},
		{NodeFs, apart, "volume logs layer memory claim asked"},
		{NodeInodes, one, "asked volume logs layer memory claim"}, // pods cannot request inodes
	} {
		if got := names(Rank(list, c.s, c.d, 10)); got != c.want {
			t.Errorf("%s of %+v: %q, not %q", c.s, c.d, got, c.want)
		}
	}
}

func TestExceeded(t *testing.T) {
	q := resource.MustParse
	volume := writes(aPod("p", "", "", 0), 0, 0, 2000)
	volume.Pod.Spec.Volumes[0].EmptyDir.SizeLimit = new(q("1999"))
	even := writes(aPod("p", "", "", 0), 0, 0, 2000)
	even.Pod.Spec.Volumes[0].EmptyDir.SizeLimit = new(q("2k"))
	memory := writes(aPod("p", "", "", 0), 0, 0, 2000)
	memory.Pod.Spec.Volumes[0].EmptyDir = &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory, SizeLimit: new(q("1"))}
	limited := func(layer, logs, volume uint64, other bool) Candidate {
		c := writes(aPod("p", "", "", 0), layer, logs, volume)
		c.Pod.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: q("1k")}
		if other { // the pod's limit becomes higher
			c.Pod.Spec.Containers = append(c.Pod.Spec.Containers,
				v1.Container{Name: "d", Resources: v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceEphemeralStorage: q("1M")}}})
		}
		return c
	}
	sidecar := limited(600, 500, 0, true)
	sidecar.Pod.Spec.Containers[0].RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	sidecar.Pod.Spec.InitContainers, sidecar.Pod.Spec.Containers = sidecar.Pod.Spec.Containers[:1:1], sidecar.Pod.Spec.Containers[1:]
	for name, c := range map[string]struct {
		c      Candidate
		layers bool
		limit  Limit
		want   string
	}{
		"volume":       {volume, true, volumeLimit, `Usage of EmptyDir volume "v" exceeds the limit "1999". `},
		"volume, just": {even, true, "", ""},
		"in memory":    {memory, true, "", ""},
		"pod": {
			limited(400, 400, 400, false), true, podLimit,
			"Pod ephemeral local storage usage exceeds the total limit of containers 1k. ",
		},
		"container": {
			limited(600, 500, 0, true), true, containerLimit,
			`Container c exceeded its local ephemeral storage limit "1k". `,
		},
		"container, layers elsewhere": {limited(600, 500, 0, true), false, "", ""},
		"container, within":           {limited(500, 500, 5000, true), true, "", ""},
		"sidecar":                     {sidecar, true, containerLimit, `Container c exceeded its local ephemeral storage limit "1k". `},
		"nothing known":               {Candidate{Pod: volume.Pod}, true, "", ""},
	} {
		limit, message := FindExceeded(c.c, c.layers)
		if limit != c.limit || message != c.want {
			t.Errorf("%s: %s %q, not %s %q", name, limit, message, c.limit, c.want)
		}
		if want := name != "in memory"; HasMeasuredLimit(c.c.Pod) != want {
			t.Errorf("%s: limited is not %v", name, want)
		}
	}
}

func TestMessage(t *testing.T) {
	o := Observations{
		Memory: {Free: 50 * mib, Total: 512 * mib}, NodeFs: {Free: 3 << 30, Total: 60 << 30},
		NodeInodes: {Free: 7, Total: 1000}, PIDs: {Free: 9, Total: 100},
	}
	pod := aPod("p", "10Mi", "", 0)
	pod.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("5Mi")}}
	for _, c := range []struct {
		c                            Candidate
		t                            Threshold
		want, containers, usage, pod string
	}{
		{newCandidate(aPod("p", "10Mi", "", 0), 20*mib, 0), Threshold{Signal: Memory, Value: quantity("100Mi")},
			"The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. Container c was using 20Mi, request is 10Mi, has larger consumption of memory. ", "c", "20Mi", ""},
		{newCandidate(aPod("p", "30Mi", "", 0), 20*mib, 0), Threshold{Signal: Memory, Value: Value{Part: .25}},
			"The node was low on resource: memory. Threshold quantity: 128Mi, available: 50Mi. ", "", "", ""},
		{newCandidate(pod, 20*mib, 0), Threshold{Signal: Memory, Value: quantity("100Mi")},
			"The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. Pod p was using 20Mi, request is 5Mi, has larger consumption of memory. " +
				"Container c was using 20Mi, request is 10Mi, has larger consumption of memory. ", "c", "20Mi", "p"},
		{writes(aPod("p", "", "1k", 0), 1024, 1024, 9999), Threshold{Signal: NodeFs, Value: Value{Part: .1}},
			"The node was low on resource: ephemeral-storage. Threshold quantity: 6Gi, available: 3Gi. Container c was using 2Ki, request is 1k, has larger consumption of ephemeral-storage. ", "c", "2Ki", ""},
		{writes(aPod("p", "", "", 0), 1, 1, 1), Threshold{Signal: NodeInodes, Value: Value{Part: .05}},
			"The node was low on resource: inodes. Threshold quantity: 50, available: 7. ", "", "", ""},
		{Candidate{Pod: aPod("p", "", "", 0)}, Threshold{Signal: PIDs, Value: Value{Part: .1}},
			"The node was low on resource: pids. Threshold quantity: 10, available: 9. ", "", "", ""},
	} {
		got, a := Message(c.c, c.t, o)
		if got != c.want || a[offendingContainers] != c.containers || a[offendingUsage] != c.usage ||
			a[offendingPod] != c.pod || a[starvedResource] != string(c.t.Signal.signalInfo().resource) {
			t.Errorf("%q\nnot %q\n%v", got, c.want, a)
		}
	}
}
