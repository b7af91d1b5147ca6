package node

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/machine"
)

// beyond is the amount of memory that the agent may use while it handles hostile input, in addition to its own usage.
const beyond = 96 << 20

// memoryGroup returns the directory of a memory cgroup that contains only the agent. It also returns the names of the files with the limit
// and with the OOM kills.
func memoryGroup(m *machine.Machine) (dir, limit, fails string) {
	if unified() {
		return "/sys/fs/cgroup" + m.Cgroup + "/agent", "memory.max", "memory.events"
	}
	return "/sys/fs/cgroup/memory" + m.Cgroup + "/agent", "memory.limit_in_bytes", "memory.oom_control"
}

// confine moves the agent into a separate memory cgroup. The limit is the agent's current memory usage plus a fixed amount (the constant
// beyond). The returned function reports whether the kernel has killed a process in that cgroup because of its memory usage.
func confine(t *testing.T, m *machine.Machine) (killed func() bool) {
	t.Helper()
	dir, limit, fails := memoryGroup(m)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(dir) })
	own := int64(0)
	for line := range strings.Lines(fileText(t, fmt.Sprintf("/proc/%d/status", m.AgentPid()))) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			own = kib << 10
		}
	}
	if own == 0 {
		t.Fatal("the memory usage of the agent is unknown")
	}
	for _, w := range [][2]string{{limit, strconv.FormatInt(own+beyond, 10)}, {"cgroup.procs", strconv.Itoa(m.AgentPid())}} {
		if err := os.WriteFile(filepath.Join(dir, w[0]), []byte(w[1]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return func() bool {
		for line := range strings.Lines(fileText(t, filepath.Join(dir, fails))) {
			if f := strings.Fields(line); len(f) == 2 && f[0] == "oom_kill" {
				return f[1] != "0"
			}
		}
		return false
	}
}

// A bombedNode is a machine with a well-behaved pod and an agent whose memory is limited.
type bombedNode struct {
	*machine.Machine
	t      *testing.T
	agent  *machine.Agent
	killed func() bool
	before machine.Pod
}

// bombedMachine returns a machine without a running agent.
func bombedMachine(t *testing.T) *bombedNode {
	t.Helper()
	m := bootMachine(t)
	return &bombedNode{Machine: m, t: t}
}

// newBombed returns a machine whose agent runs with additional lines of a KubeletConfiguration.
func newBombed(t *testing.T, kubelet string) *bombedNode {
	t.Helper()
	b := bombedMachine(t)
	b.start(kubelet)
	return b
}

// start starts the agent, waits for the well-behaved pod and sets the agent's memory limit.
func (b *bombedNode) start(kubelet string, flags ...string) {
	b.t.Helper()
	b.Write("kubelet.yaml", b.Kubelet(machine.Roomy+kubelet))
	b.Write("manifests/good.yaml", manifest("good", "", "count", "100ms"))
	b.agent = b.StartAgent(flags...)
	b.before = b.WaitReady("good-edge")["good-edge"]
	b.killed = confine(b.t, b.Machine)
}

// checkAlive fails the test if the agent has exited, or if the kernel has killed a process because of its memory usage.
func (b *bombedNode) checkAlive(after string) {
	b.t.Helper()
	select {
	case <-b.agent.Ended:
		b.t.Fatalf("the agent ended after %s (OOM kill: %v):\n%s", after, b.killed(), b.AgentLog(8<<10))
	default:
	}
	if b.killed() {
		b.t.Fatalf("the kernel killed a process for its memory after %s", after)
	}
}

// well checks that the node reports no problem any more, and that the well-behaved pod has not been affected.
func (b *bombedNode) well() {
	b.t.Helper()
	b.Await("the problems to be gone", func() bool { return machine.IsWell(b.Try("status")) })
	b.checkAlive("all")
	requireSame(b.t, b.before, b.Pods()["good-edge"])
}

// textBombs returns texts that are as small as a manifest and large in memory. They are JSON and YAML documents with deep nesting, long
// lists, long names or many fields.
func textBombs() map[string]string {
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"bomb"},"spec":`
	all := map[string]string{
		"null.json":      pod + `{"containers":[` + strings.Repeat("null,", 550_000) + `null]}}`,
		"fields.json":    pod + `{"nodeSelector":{` + strings.Repeat(`"":"",`, 450_000) + `"":""}}}`,
		"unknown.json":   pod + `{` + strings.Repeat(`"x":0,`, 450_000) + `"y":0}}`,
		"name.json":      pod + `{"` + strings.Repeat("x", 2_900_000) + `":0}}`,
		"value.json":     pod + `{"nodeName":"` + strings.Repeat("x", 2_900_000) + `"}}`,
		"nested.json":    strings.Repeat(`{"a":`, 500_000),
		"list.json":      `{"apiVersion":"v1","kind":"PodList","items":[` + strings.Repeat("{},", 900_000) + `{}]}`,
		"documents.json": strings.Repeat("{}", 1_400_000),
		"flow.yaml":      "a: [" + strings.Repeat("x,", 500_000) + "]\n",
		"objects.yaml":   "a: [" + strings.Repeat("{},", 300_000) + "]\n",
		"lines.yaml":     "a:\n" + strings.Repeat("- \n", 300_000),
		"deep.yaml":      strings.Repeat("- ", 500_000),
		"alias.yaml":     "a: &a \"" + strings.Repeat("x", 1<<17) + "\"\nb: [" + strings.Repeat("*a,", 1<<15) + "]\n",
		"documents.yaml": strings.Repeat("---\na: b\n", 300_000),
	}
	laughs := "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
	for i := 1; i < 10; i++ {
		laughs += fmt.Sprintf("a%d: &a%d [%s*a%d]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d,", i-1), 9), i-1)
	}
	all["laughs.yaml"] = laughs
	return all
}

// TestTextBombs checks that the agent and a well-behaved pod survive texts that are large in memory. The texts are files in the manifest
// directory, and manifests and configurations that are posted to the local socket. The agent's memory limit is 96 MiB above its own usage.
func TestTextBombs(t *testing.T) {
	t.Parallel()
	m := newBombed(t, "")
	socket := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", fmt.Sprintf("/proc/%d/root/run/islet/islet.sock", m.Pid()))
	}}, Timeout: time.Minute}
	for name, text := range textBombs() {
		m.Write("manifests/"+name, text)
		m.Await(name+" to be read", func() bool {
			m.checkAlive(name)
			return strings.Contains(m.AgentLog(64<<10), name)
		})
		m.Remove("manifests/" + name)
		for _, path := range []string{"/islet/v1/pods", "/islet/v1/configuration"} {
			resp, err := socket.Post("http://islet"+path, "", strings.NewReader(text))
			if err != nil {
				m.checkAlive(name + " at " + path)
				t.Fatalf("%s at %s is not answered: %v", name, path, err)
			}
			if resp.StatusCode < 400 {
				t.Errorf("%s accepts %s", path, name)
			}
			_ = resp.Body.Close()
			m.checkAlive(name + " at " + path)
		}
	}
	m.well()
}
