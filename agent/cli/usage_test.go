package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/islet-edge/islet/agent/kubelet/server"
	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
	"github.com/islet-edge/islet/internal/api"
)

// processUsage is a server.Usage with processes. Each call advances the time by a second, in which a process uses a
// quarter of a core.
type processUsage struct {
	server.Usage
	calls int
}

func (u *processUsage) PodProcesses(_ context.Context, uid string) (api.Processes, error) {
	out := api.Processes{At: now.Add(time.Duration(u.calls) * time.Second), Whole: true, List: []api.Process{
		{Container: "side", PID: 1, HostPID: 90, State: "S", Threads: 1, CPU: time.Second, Memory: 1 << 20, Age: time.Hour, Command: "sleep\x1b[2J 5"},
		{Container: "app", PID: 7, HostPID: 77, User: 1000, State: "R", Threads: 3, CPU: time.Duration(u.calls) * 250 * time.Millisecond,
			Memory: 9 << 20, Age: time.Minute, Command: strings.Repeat("x", 500)},
	}}
	u.calls++
	if uid != "uid-web" {
		out.List = nil
	}
	return out, nil
}

func TestTopProcesses(t *testing.T) {
	n, _ := servertest.Start(t, func(c *server.Config) { c.Usage = &processUsage{Usage: c.Usage} })
	n.Pod("web", now, "app", "side")
	n.Pod("idle", now, "app")
	check(t, n, run(t, n, "", "top", "processes", "web"), 0,
		"CONTAINER   PID   HOST PID   UID    STATE   THREADS   CPU(cores)   MEMORY(bytes)   AGE   COMMAND\n"+
			"app         7     77         1000   R       3         250m         9Mi             60s   "+strings.Repeat("x", 197)+"...\n"+
			"side        1     90         0      S       1         0m           1Mi             60m   sleep?[2J 5\n", "")
	if got := run(t, n, "", "top", "ps", "web", "-c", "side", "--no-headers", "-o", "wide"); got.code != 0 ||
		strings.Count(got.out, "\n") != 1 {
		t.Errorf("one container: %+v", got)
	}
	if got := run(t, n, "", "top", "processes", "web", "-o", "json"); got.code != 0 || !strings.Contains(got.out, `"hostPID": 77`) {
		t.Errorf("JSON: %+v", got)
	}
	check(t, n, run(t, n, "", "top", "processes", "idle"), 0, "", "No running processes.\n")
	check(t, n, run(t, n, "", "top", "processes", "web", "-c", "none"), ExitNotFound, "",
		"islet: pod default/web has no container \"none\": it has app, side\n")
	for _, args := range [][]string{{"processes"}, {"processes", "a", "b"}, {"web", "-c", "app"}} {
		if got := run(t, n, "", append([]string{"top"}, args...)...); got.code != ExitUsage {
			t.Errorf("%q: %+v", args, got)
		}
	}
}

func TestImagesList(t *testing.T) {
	n, _ := servertest.Start(t)
	check(t, n, run(t, n, "", "images", "ls"), 0, "IMAGE             ID             SIZE     AGE         USED BY\n"+
		"localhost/web:1   0123456789ab   5.0MiB   <unknown>   <none>\n", "")
	for _, name := range []string{"c", "a", "b"} {
		n.Pod(name, now, "web")
	}
	if got := run(t, n, "", "images", "ls", "--no-headers"); !strings.HasSuffix(got.out, "default/a, default/b and 1 more\n") {
		t.Errorf("users: %+v", got)
	}
	if got := run(t, n, "", "images", "ls", "--no-headers", "-o", "wide"); !strings.HasSuffix(got.out, "default/a, default/b, default/c\n") {
		t.Errorf("all users: %+v", got)
	}
	check(t, n, run(t, n, "", "images", "ls", "-q"), 0, "localhost/web:1\n", "")
	if got := run(t, n, "", "images", "ls", "-o", "xml"); got.code != ExitUsage {
		t.Errorf("another format: %+v", got)
	}
	if text := usersText(api.Image{Pinned: true}, maxImageUsers); text != "<pinned>" {
		t.Error(text)
	}
}

func TestSystemDF(t *testing.T) {
	n, _ := node(t)
	want := "TYPE         TOTAL   IN USE   SIZE     RECLAIMABLE\n" +
		"Images       1       0        5.0MiB   5.0MiB (100%): islet images prune\n" +
		"Containers   0       0        0B       0B\nLogs         0       0        0B       0B\nEmptyDirs    0       0        0B       0B\n"
	check(t, n, run(t, n, "", "system", "df"), 0, want, "")
	check(t, n, run(t, n, "", "df"), 0, want, "")
	if got := run(t, n, "", "system", "df", "-o", "json"); got.code != 0 || !strings.Contains(got.out, `"reclaimable": 5242880`) {
		t.Errorf("JSON: %+v", got)
	}
	if got := run(t, n, "", "system", "df", "-o", "xml"); got.code != ExitUsage {
		t.Errorf("another format: %+v", got)
	}
}

// TestDiskUse checks how the usage of pods, images and claims is added.
func TestDiskUse(t *testing.T) {
	bytes := func(n uint64) *stats.FsStats { return &stats.FsStats{UsedBytes: &n} }
	pods := []v1.Pod{{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Spec: v1.PodSpec{Volumes: []v1.Volume{
		{Name: "tmp", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		{Name: "ram", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}},
		{Name: "nfs", VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{}}}}}}}
	running := []stats.PodStats{{PodRef: stats.PodReference{UID: "u"}, Containers: []stats.ContainerStats{{Rootfs: bytes(1), Logs: bytes(10)}, {Logs: bytes(20)}},
		VolumeStats: []stats.VolumeStats{{Name: "tmp", FsStats: *bytes(100)}, {Name: "ram", FsStats: *bytes(1000)}, {Name: "nfs", FsStats: *bytes(1 << 40)}}}}
	for i, want := range []diskUse{{Type: "Containers", Total: 1, InUse: 1, Size: 1}, {Type: "Logs", Total: 2, InUse: 2, Size: 30}, {Type: "EmptyDirs", Total: 1, InUse: 1, Size: 100}} {
		if got := podUse(running, pods)[i]; got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	sum := &stats.Summary{Node: stats.NodeStats{Runtime: &stats.RuntimeStats{ImageFs: bytes(120)}}}
	p := &api.Pruned{Removed: []api.Image{{Size: 200}}, Kept: []api.Kept{{Image: api.Image{Size: 5}}}}
	if got := imageUse(p, sum); got.Size != 120 || got.Reclaimable != 120 || got.Total != 2 || got.InUse != 1 {
		t.Errorf("images: %+v", got)
	}
	claims := []api.Object{{Kind: "PersistentVolumeClaim", Claim: &api.Claim{Used: 7, Exists: true}, Pods: []string{"default/web"}},
		{Kind: "PersistentVolumeClaim", Claim: &api.Claim{Used: 9, Exists: true}}, {Kind: "PersistentVolumeClaim", Claim: &api.Claim{Used: -1, Exists: true}},
		{Kind: "PersistentVolumeClaim", Claim: &api.Claim{}}, {Kind: "Secret"}}
	if got := claimUse(claims); got.Total != 3 || got.InUse != 1 || got.Size != 16 || got.Reclaimable != 9 {
		t.Errorf("claims: %+v", got)
	}
}
