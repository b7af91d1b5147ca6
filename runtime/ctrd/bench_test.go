package ctrd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	benchPods = 30
	idleTime  = 10 * time.Second
)

// BenchmarkStart runs 30 pods with one container each and reports the cost. It also reports the cost of the same containers with the OCI
// runtime alone.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		n := newNode(b, 16)
		before := n.cost(b)
		began := time.Now()
		var g errgroup.Group
		g.SetLimit(4)
		for i := range benchPods {
			g.Go(func() error { n.runPod(b, i, "wait"); return nil })
		}
		if err := g.Wait(); err != nil {
			b.Fatal(err)
		}
		wall := time.Since(began)
		after := n.cost(b)
		b.ReportMetric(wall.Seconds()*1000, "ms/30pods")
		b.ReportMetric((after.cpu-before.cpu).Seconds()*1000, "cpu-ms/30pods")
		b.ReportMetric(float64(after.written-before.written)/1024, "written-KiB")
		b.ReportMetric(float64(after.shims)/1024, "shims-PSS-KiB")
		b.ReportMetric(float64(after.heap)/1024, "own-PSS-KiB")
		<-time.After(idleTime)
		idle := n.cost(b)
		b.ReportMetric((idle.cpu-after.cpu).Seconds()*100/idleTime.Seconds(), "idle-%")
		b.ReportMetric(float64(idle.written-after.written)/1024, "idle-KiB")
		bare := n.bare(b)
		b.ReportMetric(bare.Seconds()*1000, "bare-cpu-ms/30pods")
		b.ReportMetric(float64(after.cpu-before.cpu)/float64(bare), "x-bare")
	}
}

// BenchmarkMany starts many pods in batches. It compares the CPU time per pod in the first batch and in the last one.
func BenchmarkMany(b *testing.B) {
	const many = 8 * benchPods
	for b.Loop() {
		n := newNode(b, 16)
		var took []time.Duration
		for batch := range many / benchPods {
			before := n.cost(b)
			var g errgroup.Group
			g.SetLimit(4)
			for i := range benchPods {
				g.Go(func() error { n.runPod(b, batch*benchPods+i, "wait"); return nil })
			}
			if err := g.Wait(); err != nil {
				b.Fatal(err)
			}
			took = append(took, n.cost(b).cpu-before.cpu)
		}
		b.ReportMetric(took[0].Seconds()*1000/benchPods, "first-cpu-ms/pod")
		b.ReportMetric(took[len(took)-1].Seconds()*1000/benchPods, "last-cpu-ms/pod")
		before := n.cost(b)
		n.removeAll(b)
		b.ReportMetric((n.cost(b).cpu-before.cpu).Seconds()*1000/many, "remove-cpu-ms/pod")
	}
}

type cost struct {
	cpu         time.Duration // CPU time of this process, the shims and the children of both
	written     uint64        // bytes that this process and the shims have written
	shims, heap uint64        // memory of the shims and of this process, in bytes
}

func (n *node) cost(t testing.TB) cost {
	t.Helper()
	var self, children unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &self)
	unix.Getrusage(unix.RUSAGE_CHILDREN, &children)
	c := cost{
		cpu:     cpuTime(self) + cpuTime(children),
		written: procNumber("/proc/self/io", "write_bytes:"), heap: procNumber("/proc/self/smaps_rollup", "Pss:") * 1024,
	}
	for _, dir := range n.shimDirs(t) {
		c.shims += procNumber(dir+"/smaps_rollup", "Pss:") * 1024
		c.written += procNumber(dir+"/io", "write_bytes:")
		b, _ := os.ReadFile(dir + "/stat")
		_, rest, _ := strings.Cut(string(b), ") ")
		f := strings.Fields(rest)
		for _, k := range []int{11, 12, 13, 14} { // utime, stime, cutime, cstime
			ticks, _ := strconv.ParseInt(f[k], 10, 64)
			c.cpu += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	return c
}

// shimDirs returns the directories of the shims in /proc.
func (n *node) shimDirs(t testing.TB) (dirs []string) {
	t.Helper()
	for pid := range n.shims(t, "") {
		dirs = append(dirs, filepath.Join("/proc", strconv.Itoa(pid)))
	}
	return dirs
}

func cpuTime(u unix.Rusage) time.Duration {
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func procNumber(path, field string) uint64 {
	b, _ := os.ReadFile(path)
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, field); ok {
			v, _ := strconv.ParseUint(strings.Fields(rest)[0], 10, 64)
			return v
		}
	}
	return 0
}

// bare runs the containers of the node again, with the OCI runtime alone. It returns the CPU time.
func (n *node) bare(t testing.TB) time.Duration {
	t.Helper()
	st, err := n.Status(context.Background(), &api.StatusRequest{Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	runtime, root := st.Info["ociRuntime"], t.TempDir()
	list, err := n.ListContainers(context.Background(), &api.ListContainersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var before, after unix.Rusage
	unix.Getrusage(unix.RUSAGE_CHILDREN, &before)
	for i, c := range list.Containers {
		id := "bare" + strconv.Itoa(i)
		bundle := n.bareBundle(t, c.Id, id)
		for _, args := range [][]string{{"create", "--bundle", bundle, id}, {"start", id}} {
			cmd := exec.Command(runtime, append([]string{"--root", root}, args...)...)
			if err := cmd.Run(); err != nil {
				t.Fatal(err)
			}
		}
	}
	unix.Getrusage(unix.RUSAGE_CHILDREN, &after)
	for i := range list.Containers {
		exec.Command(runtime, "--root", root, "delete", "--force", "bare"+strconv.Itoa(i)).Run()
	}
	return cpuTime(after) - cpuTime(before)
}

// bareBundle copies a bundle. The copy has its own root file system and cgroup.
func (n *node) bareBundle(t testing.TB, id, as string) string {
	t.Helper()
	from := filepath.Join(n.run, "b", id)
	raw, err := os.ReadFile(filepath.Join(from, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	raw = bytes.ReplaceAll(raw, []byte(n.cgroup+"/"+id), []byte(n.cgroup+"/"+as))
	var spec map[string]any
	if err := json.Unmarshal(raw, &spec); err != nil {
		t.Fatal(err)
	}
	spec["root"].(map[string]any)["path"] = filepath.Join(from, "rootfs")
	raw, err = json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}
