package node

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// sharingPod returns a pod whose containers mount the directory DISK/shared at /v.
func sharingPod(m *machine.Machine, name, spec string) string {
	text := fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  volumes: [{name: v, hostPath: {path: %s, type: DirectoryOrCreate}}]
%s`, name, filepath.Join(m.Disk, "shared"), spec)
	return strings.NewReplacer("IMAGE", fmt.Sprintf("image: %s, imagePullPolicy: Never, volumeMounts: [{name: v, mountPath: /v}]",
		machine.Image)).Replace(text)
}

// notedLines returns the lines of DISK/shared/log.
func notedLines(t *testing.T, m *machine.Machine) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(m.Disk, "shared", "log"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

func times(lines []string, line string) (n int) {
	for _, l := range lines {
		if l == line {
			n++
		}
	}
	return n
}

// expectOrder checks that the given lines occur in the log in the given order.
func expectOrder(t *testing.T, lines []string, chain ...string) {
	t.Helper()
	at := -1
	for _, l := range chain {
		i := slices.Index(lines, l)
		if i <= at {
			t.Errorf("%q is not in the order %q", l, chain)
		}
		at = i
	}
}

// TestHooks checks the order of hooks with the starts and exits of containers and sidecars. After a SIGKILL of the agent, an interrupted
// hook must run again. A finished hook must not run again. A deletion in progress must continue.
func TestHooks(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	m.Write("manifests/life.yaml", sharingPod(m, "life", `  os: {name: linux}
  terminationGracePeriodSeconds: 600
  initContainers:
  - {name: s, restartPolicy: Always, IMAGE, args: [live, /v/log, s],
     lifecycle: {postStart: {exec: {command: [/podtool, hook, /v/log, s.postStart]}}, preStop: {exec: {command: [/podtool, hook, /v/log, s.preStop]}}}}
  containers:
  - {name: c, IMAGE, args: [live, /v/log, c],
     lifecycle: {postStart: {exec: {command: [/podtool, hook, /v/log, c.postStart, /v/start]}}, preStop: {exec: {command: [/podtool, hook, /v/log, c.preStop, /v/stop]}}}}
  - {name: d, IMAGE, args: [serve, ":8080", /v/log], lifecycle: {stopSignal: SIGINT, preStop: {httpGet: {path: /bye, port: 8080}}}}
`))
	m.StartAgent()
	begun := func(hook string, often int) {
		t.Helper()
		m.Await(hook+" to begin", func() bool { return times(notedLines(t, m), hook+" begins") == often })
	}
	waiting := func() {
		t.Helper()
		m.WaitPods("the pod to wait for its hook", func(pods map[string]machine.Pod) bool {
			p := pods["life-edge"]
			if len(p.Status.ContainerStatuses) != 2 {
				return false
			}
			w := p.Status.ContainerStatuses[0].State.Waiting
			return p.Status.Phase == "Pending" && w != nil && w.Reason == "PodInitializing" && p.Status.ContainerStatuses[1].ContainerID == ""
		})
	}
	begun("c.postStart", 1)
	waiting()
	if out := m.Islet("exec", "life", "-c", "c", "--", "/podtool", "cat", "/etc/hostname"); out != "life-edge\n" {
		t.Errorf("exec while the hook runs: %q", out)
	}
	m.Kill()
	m.StartAgent()
	begun("c.postStart", 2)
	waiting()
	m.Write("shared/start", "")
	before := m.WaitReady("life-edge")
	m.Kill()
	m.StartAgent()
	if n := changed(containers(before), m.WaitReady("life-edge")); n != 0 {
		t.Error("the containers were replaced")
	}
	if out := m.Islet("pods", "-A", "-o", "json"); !strings.Contains(out, `"stopSignal": "SIGINT"`) {
		t.Errorf("the status shows no stop signal:\n%s", out)
	}
	lines := notedLines(t, m)
	if times(lines, "s.postStart begins") != 1 || times(lines, "c.postStart begins") != 2 {
		t.Errorf("hooks ran too often: %q", lines)
	}
	expectOrder(t, lines, "s.postStart begins", "s.postStart is over", "c.postStart begins", "c.postStart is over")

	m.Remove("manifests/life.yaml")
	begun("c.preStop", 1)
	begun("s.preStop", 1)
	m.Kill()
	m.StartAgent()
	begun("c.preStop", 2)
	m.Write("shared/stop", "")
	m.WaitReady()
	lines = notedLines(t, m)
	expectOrder(t, lines, "c.preStop begins", "c.preStop is over", "c ends", "s ends")
	expectOrder(t, lines, "s.preStop begins", "c ends", "s ends")
	expectOrder(t, lines, "/bye by kube-lifecycle/1.37", "s ends")
}

// TestPodLife checks the effects of a failed postStart hook, of sidecars and of restart rules.
func TestPodLife(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	m.Write("manifests/refused.yaml", sharingPod(m, "refused", `  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, IMAGE, args: [stubborn], lifecycle: {postStart: {exec: {command: [/podtool, exit, "3"]}}}}
`))
	m.Write("manifests/again.yaml", sharingPod(m, "again", `  containers:
  - {name: c, IMAGE, args: [sleep], lifecycle: {postStart: {tcpSocket: {port: 80}}}}
`))
	m.Write("manifests/job.yaml", sharingPod(m, "job", `  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  initContainers:
  - {name: s, restartPolicy: Always, IMAGE, args: [stubborn]}
  containers:
  - {name: c, IMAGE, args: [exit, "0"]}
`))
	m.Write("manifests/all.yaml", sharingPod(m, "all", `  restartPolicy: Never
  initContainers:
  - {name: i, IMAGE, args: [write, /v/inits, x]}
  - {name: s, restartPolicy: Always, IMAGE, args: [stubborn]}
  containers:
  - {name: c, restartPolicy: Never, restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}], IMAGE, args: [once, /v/once, "42"]}
  - {name: d, IMAGE, args: [sleep], lifecycle: {preStop: {exec: {command: [/podtool, hook, /v/log, d.preStop]}}}}
`))
	m.StartAgent()
	pods := m.WaitPods("all pods to get where they should", func(pods map[string]machine.Pod) bool {
		again := pods["again-edge"].Status.ContainerStatuses
		return pods["refused-edge"].Status.Phase == "Failed" && pods["job-edge"].Status.Phase == "Succeeded" &&
			len(again) == 1 && again[0].State.Waiting != nil && again[0].State.Waiting.Reason == "CrashLoopBackOff" &&
			pods["all-edge"].Ready() && pods["all-edge"].Status.ContainerStatuses[0].RestartCount == 1
	})
	if s := pods["job-edge"].Status.ContainerStatuses; len(s) != 1 || s[0].State.Terminated == nil || s[0].State.Terminated.ExitCode != 0 {
		t.Errorf("job: %+v", s)
	}
	all := pods["all-edge"].Status.ContainerStatuses
	if last := all[0].LastState.Terminated; last == nil || last.ExitCode != 42 || all[1].RestartCount != 1 {
		t.Errorf("all: %+v", all)
	}
	if b, err := os.ReadFile(filepath.Join(m.Disk, "shared", "inits")); string(b) != "xx" {
		t.Errorf("the init container ran %q times, %v", b, err)
	}
	if lines := notedLines(t, m); times(lines, "d.preStop begins") != 0 {
		t.Errorf("preStop hooks ran: %q", lines)
	}
	for pod, want := range map[string]string{"refused-edge": "PostStartHook failed", "again-edge": "FailedPostStartHook"} {
		if out := m.Islet("events", pod); !strings.Contains(out, want) {
			t.Errorf("events of %s lack %q:\n%s", pod, want, out)
		}
	}
	// An event contains no reason for a failed hook, because the reason may contain secrets. The node itself shows the reason.
	for pod, why := range map[string]string{"refused-edge": "exited with 3", "again-edge": "Cannot run handler"} {
		if out := m.Islet("events", pod); strings.Contains(out, why) {
			t.Errorf("the events of %s contain the reason:\n%s", pod, out)
		}
		if out := m.Islet("describe", pod); !strings.Contains(out, "postStart of c, ") || !strings.Contains(out, why) {
			t.Errorf("describe of %s contains no reason for the hook's failure:\n%s", pod, out)
		}
	}
	if out, _ := m.Try("status"); !strings.Contains(out, "Cannot run handler") {
		t.Errorf("status contains no reason for the hook's failure:\n%s", out)
	}
	if out := m.Islet("describe", "all-edge"); !strings.Contains(out, "AllContainersRestarting") {
		t.Errorf("describe shows no condition:\n%s", out)
	}
}
