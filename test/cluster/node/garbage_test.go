package node

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
	corev1 "k8s.io/api/core/v1"
)

// TestFullDiskCutOff checks that a node with a full disk and a cut link removes only images that no stored pod needs. The images of
// running, crashing, ended and static pods must stay. After a reboot without a network all pods must run again.
func TestFullDiskCutOff(t *testing.T) {
	for _, x := range []struct {
		name, config string
		free         uint64 // MiB that are free on the full disk
		after        uint64 // MiB that are free at the reboot
		patience     time.Duration
		long         bool
	}{
		// Images are removed before pods are evicted. The node checks this every minute.
		{"eviction", "imageGCHighThresholdPercent: 100\nevictionHard: {imagefs.available: 75Mi}\nevictionPressureTransitionPeriod: 5s\n", 60, 100, 3 * time.Minute, false},
		// Without an eviction threshold for images, the node checks the disk every five minutes.
		{"collection", "imageGCHighThresholdPercent: 85\nimageMinimumGCAge: 1s\nevictionHard: {memory.available: 1Mi}\n", 10, 10, 7 * time.Minute, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			if x.long && os.Getenv("ISLET_TEST_LONG") == "" {
				t.Skip("make test-long has the time")
			}
			t.Parallel()
			fullDisk(t, x.config, x.free<<20, x.after<<20, x.patience)
		})
	}
}

func fullDisk(t *testing.T, config string, free, after uint64, patience time.Duration) {
	c := start(t)
	n := c.Node(t, "")
	configureDisk(n, config)
	disk := smallDisk{n: n, dir: n.Disk + "/state"}
	n.Run("sh", "-c", fmt.Sprintf("truncate -s 300M %[1]s/img; mkfs.ext4 -q -m 0 %[1]s/img", n.Disk))
	disk.mount()
	n.Join()
	for _, archive := range machine.ArchivesOf(t, map[string]int{"runs": 1, "crashes": 1, "over": 1, "own": 1, "nobodys": 40}) {
		n.Islet("images", "import", archive)
	}
	ns := c.Namespace(t)
	with := func(image, spec string, args ...string) string {
		return strings.Replace(pod(ns, image, spec, "", args...), machine.Image, machine.RefOf(image), 1)
	}
	n.Write("manifests/own.yaml", with("own", "", "sleep"))
	c.Apply(t, with("runs", "", "sleep")+with("crashes", "", "exit", "1")+with("over", "restartPolicy: Never", "exit", "0"))
	before := n.WaitPods("pods to run, to crash and to end", func(pods map[string]machine.Pod) bool {
		return pods["runs"].Ready() && pods["own-"+n.Name].Ready() && restarts(pods["crashes"]) > 0 && pods["over"].Status.Phase == "Succeeded"
	})
	c.AwaitPod(t, ns, "over", "to have ended", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })

	n.Cut(t)
	n.Await("the node to know that the link is down",
		func() bool { out, _ := n.Try("status"); return strings.Contains(out, "there has been no link") })
	disk.fill(t, free)
	late := time.Now().Add(patience)
	for strings.Contains(n.Islet("images", "ls"), "localhost/nobodys") {
		if time.Now().After(late) {
			t.Fatalf("the unused image still exists after %v with %d MiB free:\n%s", patience, disk.free(t)>>20, n.Islet("images", "ls"))
		}
		cluster.Pass(time.Second)
	}
	has := func(when string) {
		t.Helper()
		for _, name := range []string{"runs", "crashes", "over", "own"} {
			if out := n.Islet("images", "ls"); !strings.Contains(out, "localhost/"+name) {
				t.Errorf("%s the image of %s is gone:\n%s", when, name, out)
			}
		}
	}
	has("when the disk was full")
	disk.fill(t, after)
	n.Islet("images", "prune")
	has("when images were pruned")
	for name, p := range n.Pods() {
		if name != "crashes" && (p.Status.Phase != before[name].Status.Phase ||
			p.Status.ContainerStatuses[0].ContainerID != before[name].Status.ContainerStatuses[0].ContainerID) {
			t.Errorf("%s was %+v, and is %+v", name, before[name].Status, p.Status)
		}
	}

	n.Reboot()
	disk.mount()
	n.Start()
	count := restarts(before["crashes"])
	n.WaitPods("all pods to come back", func(pods map[string]machine.Pod) bool {
		return pods["runs"].Ready() && pods["own-"+n.Name].Ready() && restarts(pods["crashes"]) > count &&
			pods["over"].Status.Phase == "Succeeded" &&
			pods["runs"].Status.ContainerStatuses[0].ContainerID != before["runs"].Status.ContainerStatuses[0].ContainerID
	})
	has("after the reboot")
}

func restarts(p machine.Pod) int {
	if len(p.Status.ContainerStatuses) == 0 {
		return 0
	}
	return p.Status.ContainerStatuses[0].RestartCount
}

// A smallDisk is a separate file system for a directory of a machine.
type smallDisk struct {
	n   *cluster.Node
	dir string
}

func (d smallDisk) mount() {
	d.n.Run("mkdir", "-p", d.dir)
	d.n.Run("mount", "-o", "loop", d.n.Disk+"/img", d.dir)
}

// fill creates a file so that only the given number of bytes is free.
func (d smallDisk) fill(t *testing.T, free uint64) {
	t.Helper()
	if now := d.free(t); now > free {
		d.n.Run("fallocate", "-l", fmt.Sprint(now-free), fmt.Sprintf("%s/filler%d", d.dir, now))
	}
}

func (d smallDisk) free(t *testing.T) uint64 {
	t.Helper()
	var s syscall.Statfs_t
	if err := syscall.Statfs(fmt.Sprintf("/proc/%d/root%s", d.n.Pid(), d.dir), &s); err != nil {
		t.Fatal(err)
	}
	return s.Bavail * uint64(s.Bsize)
}
