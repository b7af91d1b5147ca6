// Package bench measures a whole node: memory, CPU, latency and bytes written. It runs only with make bench, because it checks no results.
// The same run also measures the OCI runtime alone with the same containers, so the ratios are comparable between machines.
package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/figures"
	"github.com/islet-edge/islet/test/machine"
)

func TestMain(m *testing.M) {
	machine.Main()
	os.Exit(m.Run())
}

func TestFigures(t *testing.T) {
	idle := figures.IdleTime(t)
	f := &figures.Table{}
	for _, n := range counts() {
		t.Run(fmt.Sprint(n, "pods"), func(t *testing.T) { measure(t, f, n, idle) })
	}
	fmt.Print("\n", f)
}

// memoryGoal contains the project's goals for the PSS in MiB, by number of pods.
var memoryGoal = map[int]int{1: 45, 30: 60, 100: 100}

func measure(t *testing.T, f *figures.Table, n int, idle time.Duration) {
	bare := bareRuntime(t, n)

	m := machine.New(t, "edge")
	m.InstallImage()
	m.Boot()
	m.StartAgent()
	m.Await("the image to be imported", func() bool {
		return strings.Contains(m.Islet("images", "ls"), "podtool")
	})
	m.Stop()
	for i := range n {
		m.Write(fmt.Sprintf("manifests/p%03d.yaml", i), pod(i))
	}

	m.PowerOff() // so that the node starts with cold caches
	m.Boot()
	m.MeasureCPU = true
	cpu := m.CPU()
	agent := m.LaunchAgent()
	began := startOf(t, agent.Pid)
	m.Await("all containers to exist", func() bool { return m.Containers() >= n })
	m.WaitPods("all pods to be ready", func(pods map[string]machine.Pod) bool {
		for _, p := range pods {
			if !p.Ready() {
				return false
			}
		}
		return len(pods) == n
	})
	written := m.WrittenBytes()
	used, parts := m.CPU()-cpu, cpuParts(m)
	starts := containerStarts(t, m, n)
	name := func(s string) string { return fmt.Sprintf("%s, %d pods", s, n) }
	f.Add(name("first container after the agent's start"), seconds(starts[0]-began), goal(n == 30, "0.5 s"), "")
	f.Add(name("last container after the agent's start"), seconds(starts[n-1]-began), goal(n == 30, "2.5 s"),
		"bare runtime, one after the other: "+seconds(bare.wall))
	f.Add(name("CPU to start"), seconds(used), goal(n == 30, seconds(2*bare.cpu)),
		fmt.Sprintf("bare runtime %s, ratio %.2f; %s", seconds(bare.cpu), used.Seconds()/bare.cpu.Seconds(), parts))
	f.Add(name("written while starting"), fmt.Sprintf("%.2f MiB", float64(written)/(1<<20)), goal(n == 30, "4 MiB"), "")

	pause(5 * time.Second) // the agent collects garbage
	for _, part := range m.PSS() {
		f.Add(name("memory, PSS: "+part.What), fmt.Sprintf("%.1f MiB", part.MiB), "", fmt.Sprintf("%d processes", part.Count))
	}
	f.Add(name("memory, PSS: whole node stack"), fmt.Sprintf("%.1f MiB", m.TotalPSS()), fmt.Sprintf("%d MiB", memoryGoal[n]), "")
	anonymous := m.Anonymous()
	f.Add(name("anonymous memory: whole node stack"), fmt.Sprintf("%.1f MiB", anonymous["agent"]+anonymous["shims"]), "",
		fmt.Sprintf("agent %.1f MiB, shims %.1f MiB", anonymous["agent"], anonymous["shims"]))

	cpu, io := m.CPU(), m.WrittenBytes()
	pause(idle)
	used, written = m.CPU()-cpu, m.WrittenBytes()-io
	f.Add(name("idle CPU of one core"), fmt.Sprintf("%.3f %%", 100*used.Seconds()/idle.Seconds()), goal(n == 30, "0.5 %"),
		fmt.Sprintf("over %v", idle))
	f.Add(name("written when idle"), fmt.Sprintf("%.1f KiB/h", float64(written)/1024*3600/idle.Seconds()), goal(n == 30, "50 KiB/h"), "")

	before := m.Pods()
	m.Kill()
	again := m.LaunchAgent()
	began = startOf(t, again.Pid)
	after := m.WaitPods("all pods to be adopted", func(pods map[string]machine.Pod) bool {
		for _, p := range pods {
			if !p.Ready() {
				return false
			}
		}
		return len(pods) == n
	})
	f.Add(name("kill -9 and start: all known and ready again"), seconds(uptime(t)-began), goal(n == 30, "1 s"),
		fmt.Sprintf("%d containers restarted", replaced(before, after)))
}

func goal(applies bool, s string) string {
	if applies {
		return s
	}
	return ""
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// pause waits for the duration of a measurement.
func pause(d time.Duration) { <-time.After(d) }

func pod(i int) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: p%03d}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: %q, imagePullPolicy: Never, args: [sleep]}
`, i, machine.Image)
}

func replaced(before, after map[string]machine.Pod) (n int) {
	for name, p := range before {
		if p.Status.ContainerStatuses[0].ContainerID != after[name].Status.ContainerStatuses[0].ContainerID {
			n++
		}
	}
	return n
}

// counts returns the numbers of pods: 1, 30 and 100, or ISLET_BENCH_PODS.
func counts() []int {
	if n, err := strconv.Atoi(os.Getenv("ISLET_BENCH_PODS")); err == nil {
		return []int{n}
	}
	return []int{1, 30, 100}
}
