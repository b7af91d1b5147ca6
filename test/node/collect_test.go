package node

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/machine"
)

// A collectNode is a node on which tests kill containers. The tests check which ended containers the node keeps.
type collectNode struct {
	*testing.T
	*machine.Machine
	pods []string
}

// end kills the container of each pod and waits for its restart.
func (d collectNode) end() {
	d.Helper()
	count := map[string]int{}
	for name, p := range d.WaitReady(d.pods...) {
		count[name] = restarts(map[string]machine.Pod{name: p})
	}
	var pids []int
	d.Await("the containers' programs", func() bool { // a new container still executes the OCI runtime
		pids = nil
		for pid, command := range d.ContainerProcesses() {
			if strings.HasPrefix(command, "/podtool") {
				pids = append(pids, pid)
			}
		}
		return len(pids) == len(d.pods)
	})
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			d.Fatal(err)
		}
	}
	d.WaitPods("the next containers", func(pods map[string]machine.Pod) bool {
		return !slices.ContainsFunc(d.pods, func(name string) bool {
			return !pods[name].Ready() || restarts(map[string]machine.Pod{name: pods[name]}) != count[name]+1
		})
	})
}

// keptAttempts returns the restart counts of a pod's containers whose logs exist, sorted.
func (d collectNode) keptAttempts(pod string) (attempts []int) {
	d.Helper()
	logs, err := filepath.Glob(filepath.Join(d.Disk, "logs", "default_"+pod+"_*", "c", "*.log"))
	if err != nil {
		d.Fatal(err)
	}
	for _, l := range logs {
		attempts = append(attempts, number(d.T, strings.TrimSuffix(filepath.Base(l), ".log")))
	}
	slices.Sort(attempts)
	return attempts
}

// waitForAttempts waits until exactly the containers with the given restart counts are kept for each pod.
func (d collectNode) waitForAttempts(what string, attempts ...int) {
	d.Helper()
	d.Await(what, func() bool {
		all := 0
		for _, p := range d.pods {
			if !slices.Equal(d.keptAttempts(p), attempts) {
				return false
			}
			all += len(attempts)
		}
		return len(d.Files(filepath.Join(d.Disk, "state/runtime/containers"))) == all
	})
}

// TestDeadContainers checks the flags that limit how many ended containers are kept with their logs. There is a limit for each container,
// a limit for all containers, and a minimum age.
func TestDeadContainers(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	m.Write("kubelet.yaml", evictConfig(m, "evictionHard: {memory.available: 1Mi}\ncrashLoopBackOff: {maxContainerRestartPeriod: 1s}\n"))
	d := collectNode{t, m, []string{"a-edge", "b-edge"}}
	m.Write("manifests/a.yaml", manifest("a", "", "sleep"))
	m.Write("manifests/b.yaml", manifest("b", "", "sleep"))
	m.StartAgent("--maximum-dead-containers-per-container=3")
	for range 4 {
		d.end()
	}
	d.waitForAttempts("three that have ended of each to stay", 1, 2, 3, 4)
	m.Stop()
	m.StartAgent("--maximum-dead-containers-per-container=3", "--maximum-dead-containers=4")
	d.waitForAttempts("four of all to stay", 2, 3, 4)
	m.Stop()
	m.StartAgent("--maximum-dead-containers-per-container=0", "--minimum-container-ttl-duration=1h")
	d.end()
	d.waitForAttempts("all to stay for an hour", 2, 3, 4, 5)
	m.Stop()
	const least = 8 * time.Second
	m.StartAgent("--maximum-dead-containers-per-container=0", "--minimum-container-ttl-duration="+least.String())
	killed := time.Now()
	d.end()
	var gone time.Time
	m.Await("the last one that ended to go", func() bool {
		gone = time.Now()
		return !slices.Contains(d.keptAttempts("a-edge"), 5)
	})
	if took := gone.Sub(killed); took < least {
		t.Errorf("the ended container was removed %v after it was killed, not %v", took, least)
	}
	d.waitForAttempts("no other to stay", 6)
}

// TestPrune checks that islet images prune removes the images that no pod needs. It must print why each other image is kept. The image of
// an ended pod is kept too. With --dry-run the command only lists the images that it would remove.
func TestPrune(t *testing.T) {
	t.Parallel()
	m := machine.New(t, "edge")
	m.Boot()
	m.StartAgent()
	for _, archive := range machine.ArchivesOf(t, map[string]int{"runs": 1, "over": 1, "nobodys": 3}) {
		m.Islet("images", "import", archive)
	}
	with := func(name, extra string, args ...string) {
		m.Write("manifests/"+name+".yaml", strings.Replace(manifest(name, extra, args...), machine.Image, machine.RefOf(name), 1))
	}
	with("runs", "", "sleep")
	with("over", "  restartPolicy: Never\n", "exit", "0")
	m.WaitPods("a pod to run and one to end", func(pods map[string]machine.Pod) bool {
		return pods["runs-edge"].Ready() && pods["over-edge"].Status.Phase == "Succeeded"
	})
	dir := filepath.Join(m.Disk, "state/containerd")
	full := usedBytes(m, dir)
	has := func(when string, names ...string) {
		t.Helper()
		list := m.Islet("images", "ls")
		for _, n := range []string{"runs", "over", "nobodys"} {
			if strings.Contains(list, "localhost/"+n) != slices.Contains(names, n) {
				t.Errorf("%s, of %q:\n%s", when, names, list)
			}
		}
	}
	stay := []string{"kept " + machine.RefOf("runs") + " (", "): needed by pod default/runs-edge\n", "kept " + machine.RefOf("over") + " (", "): needed by pod default/over-edge\n"}
	says := func(out, first string) {
		t.Helper()
		for _, want := range append(stay, first) {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in\n%s", want, out)
			}
		}
	}
	says(m.Islet("images", "prune", "--dry-run"), "would remove "+machine.RefOf("nobodys")+" (")
	has("nothing went", "runs", "over", "nobodys")
	says(m.Islet("images", "prune"), "removed "+machine.RefOf("nobodys")+" (")
	has("one went", "runs", "over")
	if now := usedBytes(m, dir); now > full-3<<20 {
		t.Errorf("the images used %d bytes before, and use %d bytes now", full, now)
	}
	if out := m.Islet("images", "prune"); strings.Contains(out, "removed") {
		t.Errorf("once more:\n%s", out)
	}
	m.Remove("manifests/over.yaml")
	m.WaitReady("runs-edge")
	stay = stay[:2]
	says(m.Islet("images", "prune"), "removed "+machine.RefOf("over")+" (")
	has("two went", "runs")
}

// usedBytes returns the size of the files in a directory.
func usedBytes(m *machine.Machine, dir string) (bytes int64) {
	fmt.Sscan(m.Run("du", "-sb", dir), &bytes)
	return bytes
}
