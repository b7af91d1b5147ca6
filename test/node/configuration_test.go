package node

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/machine"
)

// configured starts a node with two pods and short trials of configurations. It also returns the IDs of the containers.
func configured(t *testing.T) (*machine.Machine, map[string]string) {
	t.Helper()
	m := bootMachine(t)
	return m, started(m)
}

// started starts the agent with two pods and returns the IDs of their containers.
func started(m *machine.Machine) map[string]string {
	m.Write("edge.yaml", fmt.Sprintf(
		"apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\ncniConfDir: %s/cni\nconfiguration: {healthyFor: 2s, deadline: 15s}\n", m.Disk))
	m.Write("manifests/one.yaml", manifest("one", "", "count", "100ms"))
	m.Write("manifests/two.yaml", manifest("two", "", "count", "100ms"))
	m.StartAgent()
	return containers(m.WaitReady("one-edge", "two-edge"))
}

const kubeletHead = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailSwapOn: false\n" + machine.Roomy

// shownConfiguration contains the fields of islet config show that the tests check.
type shownConfiguration struct {
	Active, LastKnownGood struct{ ID, Kubelet string }
	Assigned              *struct{ ID string }
	Trying                bool
	Problem               string
	Failed, FailedUpdate  *struct{ ID, Why string }
	History               []struct {
		ID, Why     string
		Interrupted bool
	}
}

// show returns what islet config show -o json prints. It asks the agent's socket, because tests poll.
func show(m *machine.Machine) (s shownConfiguration, ok bool) {
	ok = m.Get("/islet/v1/configuration", &s)
	return s, ok
}

// awaitShown waits until the agent responds to islet config show, and returns the response. The agent may be restarting.
func awaitShown(m *machine.Machine) (s shownConfiguration) {
	m.Await("an agent that shows its configuration", func() (ok bool) {
		s, ok = show(m)
		return ok
	})
	return s
}

// awaitTrial waits for the given attempt of a trial. It reads the stored state, because a trial may end before a command gets a response.
func awaitTrial(m *machine.Machine, attempt int) {
	m.Await(fmt.Sprint("trial ", attempt), func() bool {
		var stored struct {
			Attempts int
			Trial    *struct{}
		}
		b, err := os.ReadFile(m.Disk + "/state/configuration.json")
		return err == nil && json.Unmarshal(b, &stored) == nil && stored.Trial != nil && stored.Attempts == attempt
	})
}

// unharmed checks that the given containers still run and none has restarted.
func unharmed(t *testing.T, m *machine.Machine, ids map[string]string) {
	t.Helper()
	now := m.WaitReady(slices.Sorted(maps.Keys(ids))...)
	if !maps.Equal(containers(now), ids) || restarts(now) > 0 {
		t.Errorf("containers were %v, are %v, %d restarts", ids, containers(now), restarts(now))
	}
}

// apply sends a configuration, waits for the result, and returns the output and the exit code of islet.
func apply(m *machine.Machine, text string, flags ...string) (string, int) {
	m.Write("sent.yaml", text)
	return m.Try(append([]string{"config", "apply", m.Disk + "/sent.yaml"}, flags...)...)
}

// TestConfigurationIsTried checks that a good configuration is accepted without a restart of containers. A bad configuration must be
// rejected or reverted, with a reason.
func TestConfigurationIsTried(t *testing.T) {
	t.Parallel()
	m, ids := configured(t)
	if out, code := apply(m, kubeletHead+"maxPods: 17\n"); code != 0 || !strings.Contains(out, "is in use") {
		t.Fatalf("code %d: %s", code, out)
	}
	good := awaitShown(m)
	var printed shownConfiguration
	if err := json.Unmarshal([]byte(m.Islet("config", "show", "-o", "json")), &printed); err != nil || printed.Active != good.Active {
		t.Errorf("config show -o json: %+v, %v", printed, err)
	}
	if good.Active != good.LastKnownGood || !strings.Contains(good.Active.Kubelet, "maxPods: 17") || good.Failed != nil {
		t.Errorf("%+v", good)
	}
	if out, code := m.Try("status"); !machine.IsWell(out, code) || strings.Contains(out, "configuration") {
		t.Errorf("status: %s", out)
	}
	unharmed(t, m, ids)
	for name, c := range map[string]struct {
		text, why string
		tried     bool
	}{
		"unknown field":  {kubeletHead + "maxPodz: 3\n", ":6: maxPodz: unknown field", false},
		"wrong type":     {kubeletHead + "maxPods: many\n", "maxPods", false},
		"two mistakes":   {kubeletHead + "port: 70000\npodsPerCore: -1\n", "port: Invalid value: 70000", false},
		"no pods":        {kubeletHead + "maxPods: 1\n", "fewer than the 2 pods", false},
		"the node's own": {kubeletHead + "podCIDR: 10.9.0.0/24\nstaticPodPath: /elsewhere\n", "podCIDR: Forbidden: it belongs to the node", false},
		"other document": {"apiVersion: v1\nkind: ConfigMap\n", "KubeletConfiguration", false},
		"a way in":       {kubeletHead + "authentication: {anonymous: {enabled: true}}\nauthorization: {mode: AlwaysAllow}\n", "authorization.mode: Forbidden: it belongs to the node", false},
		"the disk":       {edgeHead + "devices: [{resource: islet.dev/disk, match: [{paths: [/dev/sda]}]}]\n", "edge.devices: Forbidden: it belongs to the node", false},
		"port in use":    {kubeletHead + "readOnlyPort: 10248\n", "the port is taken", true},
		"evicts all":     {strings.Replace(kubeletHead, "memory.available: 1Mi", "memory.available: 99.99%", 1), "MemoryPressure", true},
		"no disk":        {strings.Replace(kubeletHead, "memory.available: 1Mi", "nodefs.available: 99%", 1), "DiskPressure", true},
	} {
		out, code := apply(m, c.text, "--consent", "readOnlyPort")
		if code != 1 || !strings.Contains(out, c.why) {
			t.Errorf("%s: code %d, %s", name, code, out)
		}
		now := awaitShown(m)
		if now.Active != good.Active || now.LastKnownGood != good.LastKnownGood ||
			c.tried != (now.Failed != nil && strings.Contains(now.Failed.Why, c.why)) {
			t.Errorf("%s: %+v", name, now)
		}
		unharmed(t, m, ids)
	}
	if out, code := m.Try("status"); code == 0 || !strings.Contains(out, "failed") {
		t.Errorf("status: %s", out)
	}
	if out := m.Islet("config", "revert"); !strings.Contains(out, "configuration local is in use") {
		t.Error(out)
	}
	unharmed(t, m, ids)
	if out := m.Islet("config", "history"); strings.Count(out, "accepted") != 2 || strings.Count(out, "failed: ") != 3 {
		t.Error(out)
	}
}

// TestConfigurationSurvives checks that a trial starts again after the agent is killed with SIGKILL or the power fails. Until a trial
// succeeds, the last known good configuration must stay in use.
func TestConfigurationSurvives(t *testing.T) {
	t.Parallel()
	m, ids := configured(t)
	sent := kubeletHead + "maxPods: 17\n"
	if out, code := apply(m, sent, "--no-wait"); code != 0 {
		t.Fatal(out)
	}
	for attempt := range 2 {
		awaitTrial(m, attempt+1)
		m.Kill()
		m.LaunchAgent() // it waits for the lock on the directories until the agent on trial has exited
	}
	m.Await("the third trial to end well", func() bool {
		s, ok := show(m)
		return ok && !s.Trying && strings.Contains(s.LastKnownGood.Kubelet, "17")
	})
	if s := awaitShown(m); len(s.History) != 3 || s.History[0].Why == "" || s.History[2].Why != "" {
		t.Errorf("%+v", s)
	}
	if out := m.Islet("config", "history"); strings.Count(out, "interrupted: ") != 2 || strings.Contains(out, "failed: ") {
		t.Error(out)
	}
	unharmed(t, m, ids)
	if out, code := apply(m, kubeletHead+"maxPods: 18\n", "--no-wait"); code != 0 {
		t.Fatal(out)
	}
	awaitTrial(m, 1)
	m.PowerOff()
	m.Boot()
	m.StartAgent()
	if s := awaitShown(m); !strings.Contains(s.LastKnownGood.Kubelet, "maxPods: 17") || len(s.History) != 4 || s.History[3].Why == "" {
		t.Errorf("after a loss of power %+v", s)
	}
	m.WaitReady("one-edge", "two-edge")
	m.Await("the trial to start again and succeed", func() bool {
		s, ok := show(m)
		return ok && !s.Trying &&
			strings.Contains(s.Active.Kubelet, "18")
	})
}

// TestConfigurationUnfit checks that a node works although a port of its accepted configuration is in use at a later start. The agent must
// use the previous good configuration and report the problem until the port is free.
func TestConfigurationUnfit(t *testing.T) {
	t.Parallel()
	m, ids := configured(t)
	for _, text := range []string{"maxPods: 17\n", "maxPods: 18\nreadOnlyPort: 10254\n"} {
		if out, code := apply(m, kubeletHead+text, "--consent", "readOnlyPort"); code != 0 {
			t.Fatalf("code %d: %s", code, out)
		}
	}
	var other net.Listener
	m.Stop()
	if err := machine.InNetwork(m.Pid(), func() (err error) {
		other, err = net.Listen("tcp", ":10254")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for range 2 { // the second time after a SIGKILL
		m.StartAgent()
		s := awaitShown(m)
		if !strings.Contains(s.Active.Kubelet, "maxPods: 17") || !strings.Contains(s.LastKnownGood.Kubelet, "maxPods: 18") ||
			!strings.Contains(s.Problem, "the port is taken") {
			t.Errorf("%+v", s)
		}
		if out, code := m.Try("status"); code == 0 || !strings.Contains(out, "the port is taken") {
			t.Errorf("status: code %d, %s", code, out)
		}
		unharmed(t, m, ids)
		m.Kill()
	}
	m.StartAgent()
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	m.Await("the node to see that the port is free", func() bool {
		s, ok := show(m)
		return ok && s.Active == s.LastKnownGood && strings.Contains(s.Active.Kubelet, "maxPods: 18") && s.Problem == ""
	})
	if out, code := m.Try("status"); !machine.IsWell(out, code) {
		t.Errorf("status: %s", out)
	}
	unharmed(t, m, ids)
}

// TestConfigurationHangs stops the process of an agent on trial with SIGSTOP. It checks that the agent is ended at the deadline.
func TestConfigurationHangs(t *testing.T) {
	t.Parallel()
	m, ids := configured(t)
	if out, code := apply(m, kubeletHead+"maxPods: 17\n", "--no-wait"); code != 0 {
		t.Fatal(out)
	}
	awaitTrial(m, 1)
	m.Await("the agent on trial to be stopped", func() bool {
		for pid, cmd := range m.Processes() {
			if strings.Contains(cmd, "--state-dir="+m.Disk) && pid != m.AgentPid() {
				return syscall.Kill(pid, syscall.SIGSTOP) == nil
			}
		}
		return false
	})
	began := time.Now()
	m.Await("the last known good configuration", func() bool {
		s, ok := show(m)
		return ok && !s.Trying && s.Active.ID == "local" && s.Failed != nil &&
			strings.Contains(s.Failed.Why, "not as healthy as before within 15s")
	})
	t.Logf("the node went back after %v", time.Since(began))
	unharmed(t, m, ids)
}
