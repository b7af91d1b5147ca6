package machine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// WaitTimeout is the time for which a test waits for an expected event. It is long, because a busy
// machine with two cores runs several tests at once.
const WaitTimeout = 90 * time.Second

// An Agent is a running process of islet inside a machine.
type Agent = Process

// StartAgent starts islet with directories on the machine's disk, and waits until islet serves
// requests. The manifest directory is Disk/manifests, unless Disk/kubelet.yaml sets another one.
func (m *Machine) StartAgent(extra ...string) *Agent {
	m.t.Helper()
	a := m.LaunchAgent(extra...)
	m.awaitReady(a)
	return a
}

// Roomy contains lines of a KubeletConfiguration. They disable image garbage collection and
// evictions, because the test host's disk or memory may be nearly full.
const Roomy = "imageGCHighThresholdPercent: 100\nevictionHard: {memory.available: 1Mi}\n"

// Kubelet returns a KubeletConfiguration with cgroups and logs below the machine's own directories.
// It appends the given lines.
func (m *Machine) Kubelet(lines string) string {
	return fmt.Sprintf("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncgroupRoot: %s\nfailSwapOn: "+
		"false\npodLogsDir: %s/logs\n%s", m.Cgroup, m.Disk, lines)
}

// LaunchAgent is like StartAgent, but does not wait.
func (m *Machine) LaunchAgent(extra ...string) *Agent {
	m.t.Helper()
	d := m.Disk
	for _, dir := range []string{"manifests", "cni", "logs"} {
		if err := os.MkdirAll(filepath.Join(d, dir), 0o755); err != nil {
			m.t.Fatal(err)
		}
	}
	m.writeDefault("kubelet.yaml", m.Kubelet(Roomy))
	m.writeDefault("edge.yaml", fmt.Sprintf("apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\ncniConfDir: %s/cni\n", d))
	args := append([]string{"--root-dir=" + d + "/kubelet", "--state-dir=" + d + "/state", "--run-dir=/run/islet",
		"--config=" + d + "/kubelet.yaml", "--edge-config=" + d + "/edge.yaml"}, extra...)
	if own, err := os.ReadFile(filepath.Join(d, "kubelet.yaml")); err != nil || !bytes.Contains(own, []byte("\nstaticPodPath:")) {
		args = append([]string{"--pod-manifest-path=" + d + "/manifests"}, args...)
	}
	log, err := os.OpenFile(filepath.Join(d, "agent.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		m.t.Fatal(err)
	}
	defer log.Close()
	cmd := m.Command(m.islet, args...)
	if m.MeasureCPU {
		cmd = m.MeasuredCommand(m.islet, args...)
	}
	if m.OddUmask != 0 {
		cmd = m.oddCommand(m.islet, args...)
	}
	cmd.Stdout, cmd.Stderr = log, log
	a, err := StartProcess(cmd)
	if err != nil {
		m.t.Fatalf("%v:\n%s", err, m.AgentLog(4<<10))
	}
	m.agent = a
	return a
}

func (m *Machine) writeDefault(name, content string) {
	if _, err := os.Stat(filepath.Join(m.Disk, name)); errors.Is(err, os.ErrNotExist) {
		m.Write(name, content)
	}
}

func (m *Machine) awaitReady(a *Agent) {
	m.t.Helper()
	m.await("the agent to respond", a, func() bool { return m.Pods() != nil })
}

// AgentPid returns the PID of the agent in this process's namespace.
func (m *Machine) AgentPid() int { return m.agent.Pid }

// Kill ends the agent with SIGKILL and waits for its end.
func (m *Machine) Kill() {
	m.t.Helper()
	m.signal(syscall.SIGKILL)
}

// Stop ends the agent with SIGTERM and waits for its end.
func (m *Machine) Stop() {
	m.t.Helper()
	m.signal(syscall.SIGTERM)
}

// AwaitEnd waits for the end of an agent that the test has ended without Kill or Stop.
func (m *Machine) AwaitEnd() {
	m.t.Helper()
	select {
	case <-m.agent.Ended:
		m.agent = nil
	case <-time.After(WaitTimeout):
		m.t.Fatalf("the agent did not end:\n%s", m.AgentLog(4<<10))
	}
}

func (m *Machine) signal(s syscall.Signal) {
	m.t.Helper()
	if m.agent == nil {
		m.t.Fatal("no agent runs")
	}
	if err := syscall.Kill(m.agent.Pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		m.t.Fatal(err)
	}
	select {
	case <-m.agent.Ended:
	case <-time.After(WaitTimeout):
		m.t.Fatalf("the agent did not end after %v:\n%s", s, m.AgentLog(4<<10))
	}
	m.agent = nil
}

// Islet runs a command of the binary against the agent. The test fails if the command fails.
func (m *Machine) Islet(args ...string) string {
	m.t.Helper()
	out, code := m.Try(args...)
	if code != 0 {
		m.t.Fatalf("islet %s: exit code %d\n%s", strings.Join(args, " "), code, out)
	}
	return out
}

// Try runs a command of the binary. It returns the exit code, standard output and, if the command
// fails, standard error.
func (m *Machine) Try(args ...string) (string, int) {
	cmd := m.Command(m.islet, args...)
	cmd.Env = append(cmd.Env, "ISLET_SOCKET=/run/islet/islet.sock")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return out.String(), 0
	case errors.As(err, &exit):
		return out.String() + errs.String(), exit.ExitCode()
	}
	return err.Error(), -1
}

// Pod contains the fields of a v1.Pod that the tests need.
type Pod struct {
	Metadata struct{ Name, Namespace, UID string }
	Status   struct {
		Phase, PodIP string
		Reason       string
		Message      string
		Conditions   []struct {
			Type, Status       string
			Reason             string
			LastTransitionTime time.Time
		}
		ContainerStatuses []ContainerStatus
	}
}

// ContainerStatus contains the fields of a v1.ContainerStatus that the tests need.
type ContainerStatus struct {
	Name, ContainerID, ImageID string
	Ready                      bool
	RestartCount               int
	State, LastState           struct {
		Running    *struct{ StartedAt time.Time }
		Waiting    *struct{ Reason, Message string }
		Terminated *struct {
			ExitCode        int
			Reason, Message string
			FinishedAt      time.Time
		}
	}
}

// Ready reports whether the pod's Ready condition is true.
func (p Pod) Ready() bool {
	for _, c := range p.Status.Conditions {
		if c.Type == "Ready" {
			return c.Status == "True"
		}
	}
	return false
}

// Pods returns the pods by name, or nil while the agent does not respond. It connects to the
// agent's socket directly, because tests poll often, and a run of the command needs 100 ms of CPU
// time.
func (m *Machine) Pods() map[string]Pod {
	var list struct{ Items []Pod }
	if !m.Get("/pods", &list) {
		return nil
	}
	pods := map[string]Pod{}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range list.Items {
		pods[p.Metadata.Name] = p
		for _, c := range p.Status.ContainerStatuses {
			if _, known := m.ran[c.ContainerID]; !known {
				m.ran[c.ContainerID] = false
			}
		}
	}
	return pods
}

// Get requests a document in JSON from the agent's socket, and decodes it. It reports false if the agent does not respond, or responds with
// an error. Tests that poll use it instead of a command.
func (m *Machine) Get(path string, into any) bool {
	answer, err := m.localClient().Get("http://islet" + path)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	return answer.StatusCode == http.StatusOK && json.NewDecoder(answer.Body).Decode(into) == nil // an agent may end in the middle
}

// localClient returns an HTTP client for the agent's socket.
func (m *Machine) localClient() *http.Client {
	return &http.Client{Timeout: WaitTimeout / 3, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", fmt.Sprintf("/proc/%d/root/run/islet/islet.sock", m.Pid()))
		}}}
}

// WaitPods waits until ok returns true for the pods.
func (m *Machine) WaitPods(what string, ok func(map[string]Pod) bool) map[string]Pod {
	m.t.Helper()
	var pods map[string]Pod
	m.await(what, m.agent, func() bool { pods = m.Pods(); return pods != nil && ok(pods) })
	return pods
}

// WaitReady waits until exactly these pods exist and all are ready. A pod does not count as ready
// while its status contains a container that ran before a power cut. A new agent first reports such
// statuses, which the earlier agent has stored.
func (m *Machine) WaitReady(names ...string) map[string]Pod {
	m.t.Helper()
	return m.WaitPods("pods "+strings.Join(names, " ")+" to be ready", func(pods map[string]Pod) bool {
		for _, n := range names {
			if p := pods[n]; !p.Ready() || m.ranBeforeCut(p) {
				return false
			}
		}
		return len(pods) == len(names)
	})
}

// ranBeforeCut reports whether a pod's status contains a container that ran before the power was
// cut.
func (m *Machine) ranBeforeCut(p Pod) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(p.Status.ContainerStatuses, func(c ContainerStatus) bool { return m.ran[c.ContainerID] })
}

// IsWell reports whether the output and the exit code of islet status show no problem. It ignores a
// full disk, because the machine uses the disk of the test host.
func IsWell(out string, code int) bool {
	_, needs, _ := strings.Cut(out, "Needs attention:")
	needs, _, _ = strings.Cut(needs, "\n\n") // the following lines contain no problems
	for line := range strings.Lines(needs) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "- the disk of ") {
			return false
		}
	}
	return code == 0 || needs != ""
}

// Await waits until ok returns true. The test fails if a running agent exits in the meantime.
func (m *Machine) Await(what string, ok func() bool) {
	m.t.Helper()
	m.await(what, m.agent, ok)
}

// await polls ok, because a process outside the agent gets no event when the condition becomes
// true. The pause between two calls is six times as long as the last call, so that parallel tests
// do not spend their CPU time on polling.
func (m *Machine) await(what string, a *Agent, ok func() bool) {
	m.t.Helper()
	var ended <-chan struct{} // blocks forever if there is no agent
	if a != nil {
		ended = a.Ended
	}
	late := time.After(WaitTimeout)
	for began := time.Now(); !ok(); began = time.Now() {
		select {
		case <-time.After(min(max(100*time.Millisecond, 6*time.Since(began)), time.Second)):
		case <-ended:
			m.t.Fatalf("waiting for %s: the agent ended:\n%s", what, m.AgentLog(4<<10))
		case <-late:
			out, _ := m.Try("pods", "-A", "-o", "wide")
			m.t.Fatalf("waited in vain for %s\n%s", what, out)
		}
	}
}
