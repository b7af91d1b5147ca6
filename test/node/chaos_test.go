package node

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/machine"
)

// TestKillAgent kills the agent with SIGKILL at random moments while pods start, stop and restart. Other containers run the whole time and
// must not restart. The test kills the agent 20 times, or 200 times with ISLET_TEST_LONG.
func TestKillAgent(t *testing.T) {
	t.Parallel()
	rounds := 20
	if os.Getenv("ISLET_TEST_LONG") != "" {
		rounds = 200
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))

	m := bootMachine(t)
	steady := []string{"steady0-edge", "steady1-edge", "steady2-edge"}
	for i := range steady {
		m.Write(fmt.Sprintf("manifests/steady%d.yaml", i), manifest(fmt.Sprint("steady", i), "", "count", "5ms"))
	}
	m.StartAgent()
	before := m.WaitReady(steady...)
	m.Kill()

	churn := map[string]bool{}
	exits := map[string]int{}
	for i := range rounds {
		m.LaunchAgent()
		for range r.IntN(3) {
			churnOne(m, r, churn, exits, i)
		}
		select { // wait for a random time
		case <-time.After(time.Duration(r.IntN(400)) * time.Millisecond):
		}
		m.Kill()
		if r.IntN(4) == 0 {
			churnOne(m, r, churn, exits, i)
		}
	}

	m.StartAgent()
	want := append([]string{}, steady...)
	for n := range churn {
		want = append(want, n+"-edge")
	}
	pods := m.WaitPods("everything wanted to run once", func(pods map[string]machine.Pod) bool {
		for _, n := range want {
			p, ok := pods[n]
			if _, ends := exits[strings.TrimSuffix(n, "-edge")]; !ok || !ends && !p.Ready() || ends && p.Status.Phase != "Failed" {
				return false
			}
		}
		return len(pods) == len(want)
	})
	for n, code := range exits {
		if s := pods[n+"-edge"].Status.ContainerStatuses; len(s) != 1 || s[0].State.Terminated == nil || s[0].State.Terminated.ExitCode != code {
			t.Errorf("the container of %s exited with %d, and its status is %+v", n, code, s)
		}
	}
	for _, n := range steady {
		b, a := before[n].Status.ContainerStatuses[0], pods[n].Status.ContainerStatuses[0]
		if a.RestartCount != 0 || a.ContainerID != b.ContainerID {
			t.Errorf("%s was restarted: %+v, before %+v", n, a, b)
		}
		noGap(t, m.Islet("logs", n))
	}
	addresses := map[string]string{}
	for n, p := range pods {
		if other, taken := addresses[p.Status.PodIP]; taken && p.Status.Phase == "Running" {
			t.Errorf("%s and %s have the address %s", n, other, p.Status.PodIP)
		} else if p.Status.Phase == "Running" {
			addresses[p.Status.PodIP] = n
		}
	}

	os.RemoveAll(m.Disk + "/manifests")
	m.WaitReady()
	nothingLeft(t, m)
}

// churnOne creates, replaces or deletes one pod beside the steady ones.
func churnOne(m *machine.Machine, r *rand.Rand, churn map[string]bool, exits map[string]int, round int) {
	name := fmt.Sprint("churn", r.IntN(5))
	file := "manifests/" + name + ".yaml"
	if churn[name] && r.IntN(2) == 0 {
		m.Remove(file)
		delete(churn, name)
		delete(exits, name)
		return
	}
	churn[name] = true
	delete(exits, name)
	switch r.IntN(3) {
	case 0:
		code := 1 + r.IntN(100)
		exits[name] = code
		m.Write(file, manifest(name, "  restartPolicy: Never\n", "exit", strconv.Itoa(code), fmt.Sprint(r.IntN(300), "ms")))
	case 1:
		m.Write(file, manifest(name,
			fmt.Sprintf("  initContainers: [{name: i, image: %q, imagePullPolicy: Never, args: [exit, '0', 50ms]}]\n", machine.Image), "sleep",
			fmt.Sprint(round)))
	default:
		m.Write(file, manifest(name, "", "stubborn", fmt.Sprint(round)))
	}
}

// noGap checks that the log of `podtool count` contains the numbers 0, 1, 2 and so on without a gap.
func noGap(t *testing.T, log string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(log), "\n")
	for i, line := range lines {
		if line != strconv.Itoa(i) {
			t.Fatalf("line %d of the log is %q, the one before %q", i, line, lines[max(0, i-1)])
		}
	}
	if len(lines) < 100 {
		t.Errorf("only %d lines", len(lines))
	}
}

// nothingLeft checks that a node without pods has no resources of pods left, such as cgroups, mounts and logs.
func nothingLeft(t *testing.T, m *machine.Machine) {
	t.Helper()
	if got := m.Cgroups(); len(got) > 0 {
		t.Errorf("cgroups are left: %q", got)
	}
	for _, l := range m.Links() {
		if l != "islet0" {
			t.Errorf("network interface %s is left", l)
		}
	}
	for _, p := range m.Mounts() {
		if strings.Contains(p, "/ns/") || strings.Contains(p, "/pods/") || strings.HasSuffix(p, "/rootfs") {
			t.Errorf("mount %s is left", p)
		}
	}
	if got := m.Files(m.Disk + "/kubelet/pods"); len(got) > 0 {
		t.Errorf("pod folders are left: %q", got)
	}
	m.Await("the log folders to be removed", func() bool { return len(m.Files(m.Disk+"/logs")) == 0 })
	m.Stop()
	inventory(t, m)
}
