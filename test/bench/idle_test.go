package bench

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/figures"
	"github.com/islet-edge/islet/test/machine"
)

// idlePods are the numbers of pods for which TestIdle and TestHeap measure the memory.
var idlePods = []int{0, 30, 100}

// These are the goals of the project for the anonymous memory of the node stack in MiB, by number of pods.
var anonymousGoal = map[int]string{30: "15 MiB", 100: "23 MiB"}

const (
	podGoal  = "60 KiB"     // for the agent, and for the shim
	wakeGoal = "2 a minute" // without a cluster, 30 pods
)

// TestIdle measures the anonymous memory of an idle node by number of pods, the cost of one more pod, and the bursts of activity a minute.
func TestIdle(t *testing.T) {
	idle := figures.IdleTime(t)
	f := &figures.Table{}
	m := idleMachine(t)
	parts := map[int]map[string]float64{}
	have := 0
	for i, n := range idlePods {
		addPods(m, have, n)
		have = n
		pause(20 * time.Second) // the agent and the shims return memory
		parts[n] = m.Anonymous()
		f.Add(fmt.Sprintf("anonymous memory, %d pods", n), mib(parts[n]["agent"]+parts[n]["shims"]), anonymousGoal[n],
			fmt.Sprintf("agent %s, shims %s; PSS %.1f MiB", mib(parts[n]["agent"]), mib(parts[n]["shims"]), m.TotalPSS()))
		if n == 30 {
			w := m.CountBursts(2 * idle) // by default two minutes, because each process collects garbage every two minutes
			f.Add("bursts of activity a minute, 30 pods", fmt.Sprintf("%.1f", w.PerMinute()), wakeGoal, w.String())
		}
		if i > 0 {
			before, more := parts[idlePods[i-1]], float64(n-idlePods[i-1])
			for _, who := range []string{"agent", "shims"} {
				f.Add(fmt.Sprintf("one more pod costs the %s, %d to %d pods", strings.TrimSuffix(who, "s"), idlePods[i-1], n),
					fmt.Sprintf("%.0f KiB", (parts[n][who]-before[who])*1024/more), podGoal, "anonymous memory")
			}
		}
	}
	fmt.Print("\n", f)
}

// TestHeap prints the owners of the agent's heap by number of pods. It is a test of its own, because an agent that records all allocations
// needs more memory. If ISLET_PROFILE is set, it stores the profiles of the heap and of the goroutines and an execution trace in that
// directory.
func TestHeap(t *testing.T) {
	figures.SkipUnlessBench(t)
	m := idleMachine(t, "GODEBUG=memprofilerate=1")
	c := client(t, m.AgentPid())
	heaps := map[int]figures.Heap{}
	have := 0
	for _, n := range idlePods {
		addPods(m, have, n)
		have = n
		pause(20 * time.Second) // the agent collects garbage
		text := c.text(t, "/debug/pprof/heap?debug=1&gc=1")
		if dir := os.Getenv("ISLET_PROFILE"); dir != "" {
			c.save(fmt.Sprintf("%s/heap.%d", dir, n), "/debug/pprof/heap")
			c.save(fmt.Sprintf("%s/goroutines.%d", dir, n), "/debug/pprof/goroutine?debug=1")
			c.save(fmt.Sprintf("%s/trace.%d", dir, n), fmt.Sprintf("/debug/pprof/trace?seconds=%d", int(figures.IdleTime(t)/time.Second)))
		}
		heap, err := figures.ParseHeap(text)
		if err != nil {
			t.Fatal(err)
		}
		heaps[n] = heap
	}
	first, last := idlePods[1], idlePods[2]
	f := &figures.Table{}
	for _, o := range figures.SortOwners(heaps[last]) {
		if heaps[last][o] < 16<<10 {
			continue
		}
		var all []string
		for _, n := range idlePods {
			all = append(all, fmt.Sprintf("%.0f", float64(heaps[n][o])/1024))
		}
		f.Add(o, strings.Join(all, " / "), "", fmt.Sprintf("%.2f KiB a pod", float64(heaps[last][o]-heaps[first][o])/1024/float64(last-first)))
	}
	sum := func(n int) float64 { return float64(heaps[n].Sum()) / 1024 }
	f.Add("all", fmt.Sprintf("%.0f / %.0f / %.0f", sum(0), sum(first), sum(last)), "",
		fmt.Sprintf("%.2f KiB a pod", float64(heaps[last].Sum()-heaps[first].Sum())/1024/float64(last-first)))
	fmt.Printf("\nheap in use by owner in KiB, with %v pods\n%s", idlePods, f)
}

// idleMachine returns a machine whose agent has imported the image and serves profiles.
func idleMachine(t *testing.T, env ...string) *machine.Machine {
	m := machine.New(t, "edge")
	m.Env = env
	m.InstallImage()
	m.Boot()
	m.Write("kubelet.yaml",
		m.Kubelet("authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}\nauthorization: {mode: AlwaysAllow}\n"+machine.Roomy))
	m.StartAgent()
	m.Await("the image to be imported", func() bool { return strings.Contains(m.Islet("images", "ls"), "podtool") })
	return m
}

// addPods writes the manifests of more pods, so that n pods exist, and waits until all are ready. It does not write a manifest again,
// because the agent would keep a changed file besides the pod that runs.
func addPods(m *machine.Machine, have, n int) {
	for i := have; i < n; i++ {
		m.Write(fmt.Sprintf("manifests/p%03d.yaml", i), pod(i))
	}
	m.WaitPods(fmt.Sprint(n, " pods to be ready"), func(pods map[string]machine.Pod) bool {
		for _, p := range pods {
			if !p.Ready() {
				return false
			}
		}
		return len(pods) == n
	})
}

func mib(x float64) string { return fmt.Sprintf("%.1f MiB", x) }
