package critest

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// TestCrictl checks that crictl's read commands work on a node's own pod. Commands that would end or change the pod must be rejected.
func TestCrictl(t *testing.T) {
	dir := tools(t)
	m, before := start(t)
	run := func(args ...string) *exec.Cmd {
		return m.Command(filepath.Join(dir, "crictl"), append([]string{"--runtime-endpoint", socket, "--image-endpoint", socket, "--timeout", "60s"}, args...)...)
	}
	works := func(args ...string) string {
		t.Helper()
		cmd := run(args...)
		var said bytes.Buffer
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("crictl %s: %v\n%s%s", strings.Join(args, " "), err, out, &said)
		}
		return string(out)
	}
	refused := func(why string, args ...string) {
		t.Helper()
		out, err := run(args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), why) {
			t.Errorf("crictl %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	pod, container := strings.TrimSpace(works("pods", "-q")), strings.TrimSpace(works("ps", "-q"))
	if pod == "" || container == "" || !strings.HasSuffix(before, container) {
		t.Fatalf("pod %q, container %q", pod, container)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"version"}, "RuntimeApiVersion:  v1"},
		{[]string{"info"}, `"RuntimeReady"`},
		{[]string{"runtime-config"}, "cgroup driver:"},
		{[]string{"pods"}, "own-edge"},
		{[]string{"ps"}, "own-edge"},
		{[]string{"inspectp", pod}, `"netns"`},
		{[]string{"inspect", container}, `"pid"`},
		{[]string{"logs", "--tail", "1", container}, "\n"},
		{[]string{"stats"}, container[:13]},
		{[]string{"statsp"}, "own-edge"},
		{[]string{"metricdescs"}, "container_memory_working_set_bytes"},
		{[]string{"metricsp"}, "container_network_receive_bytes_total"},
		{[]string{"images"}, "localhost/podtool"},
		{[]string{"inspecti", machine.Image}, "chainID"},
		{[]string{"imagefsinfo"}, "usedBytes"},
		{[]string{"exec", "-s", container, "/podtool", "cat", "/etc/hostname"}, "own-edge"},
		{[]string{"exec", container, "/podtool", "cat", "/etc/hostname"}, "own-edge"},
		{[]string{"update-runtime-config", "10.88.0.0/24"}, ""},
	} {
		if out := works(c.args...); !strings.Contains(out, c.want) {
			t.Errorf("crictl %s: %q is not in\n%s", strings.Join(c.args, " "), c.want, out)
		}
	}
	var info struct {
		RuntimeHandlers []struct {
			Features map[string]bool `json:"features"`
		} `json:"runtimeHandlers"`
	}
	if err := json.Unmarshal([]byte(works("info")), &info); err != nil || len(info.RuntimeHandlers) == 0 ||
		info.RuntimeHandlers[0].Features == nil {
		t.Errorf("handlers %+v, %v", info, err)
	}

	const agents = "is managed by this node's agent"
	refused(agents, "stopp", pod)
	refused(agents, "rmp", "-f", pod)
	refused(agents, "rmp", "-a", "-f")
	refused(agents, "stop", container)
	refused(agents, "rm", "-f", container)
	refused(agents, "update", "--cpu-share", "2", container)
	refused("install criu", "checkpoint", "--export="+filepath.Join(m.Disk, "c.tar"), container)
	refused("is needed by pod default/own-edge", "rmi", machine.Image)
	run("rmi", "--prune").Run() // the result for each image does not matter
	if out := works("images", "-q", machine.Image); strings.TrimSpace(out) == "" {
		t.Error("the image of the pod was removed")
	}

	// crictl may change its own pods.
	m.Write("pod.json", `{"metadata": {"name": "mine", "namespace": "default", "uid": "u", "attempt": 1}, "log_directory": "`+m.Disk+
		`/mine", "linux": {"cgroup_parent": "`+m.Cgroup+`"}}`)
	m.Write("ctr.json", `{"metadata": {"name": "c"}, "image": {"image": "registry.k8s.io/e2e-test-images/busybox:1.29-2"}, "command": ["top"], "log_path": "c.log", "linux": {}}`)
	id := strings.TrimSpace(works("run", filepath.Join(m.Disk, "ctr.json"), filepath.Join(m.Disk, "pod.json")))
	if id == "" {
		t.Error("no container was run")
	}
	works("stop", "--timeout", "1", id)
	works("rm", id)
	mine := strings.TrimSpace(works("pods", "-q", "--name", "mine"))
	works("rmp", "-f", mine)
	if left := strings.Fields(works("pods", "-q")); len(left) != 1 || left[0] != pod {
		t.Errorf("pods %v are left", left)
	}
	if after := ownContainer(m); after != before {
		t.Errorf("the node's own pod was restarted: %s, then %s", before, after)
	}
}
