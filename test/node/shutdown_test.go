package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/machine"
)

// ordered returns a pod whose preStop hook writes the time to the disk. The container ignores SIGTERM, so it runs until its grace period
// ends.
func ordered(m *machine.Machine, name, policy string, priority int) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  priority: %d
  restartPolicy: %s
  terminationGracePeriodSeconds: 4
  volumes: [{name: disk, hostPath: {path: %s/order, type: DirectoryOrCreate}}]
  containers:
  - name: c
    image: %s
    imagePullPolicy: Never
    args: [stubborn]
    volumeMounts: [{name: disk, mountPath: /order}]
    lifecycle: {preStop: {exec: {command: [/podtool, mark, /order/%[1]s]}}}
`, name, priority, policy, m.Disk, machine.Image)
}

// TestMachineGoesOff checks that islet shutdown ends the pods in the order of their priority. OpenRC's script calls this command. A
// SIGKILL of the agent must not change the order. The hooks must write to the disk, new pods must be rejected, and the pods must run again
// after the next boot. A restart of the service must end no pod.
func TestMachineGoesOff(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	m.Write("kubelet.yaml", m.Kubelet("shutdownGracePeriod: 50s\nshutdownGracePeriodCriticalPods: 20s\n"+machine.Roomy))
	m.Write("manifests/first.yaml", ordered(m, "first", "Always", 0))
	m.Write("manifests/last.yaml", ordered(m, "last", "Always", 2_000_000_000))
	m.Write("manifests/job.yaml", manifest("job", "  restartPolicy: OnFailure\n", "sleep"))
	m.Write("manifests/once.yaml", manifest("once", "  restartPolicy: Never\n", "sleep"))
	m.StartAgent()
	names := []string{"first-edge", "last-edge", "job-edge", "once-edge"}
	before := containers(m.WaitReady(names...))

	m.Islet("shutdown", "--if-off") // a restart of the service
	m.Stop()
	m.StartAgent()
	if n := changed(before, m.WaitReady(names...)); n > 0 {
		t.Errorf("%d containers ended at a restart of the service", n)
	}

	openrc := func() error {
		cmd := m.Command(m.Binary(), "shutdown", "--if-off")
		cmd.Env = append(os.Environ(), "RC_GOINGDOWN=YES", "RC_RUNLEVEL=shutdown")
		return cmd.Run()
	}
	cut := make(chan error)
	go func() { cut <- openrc() }()
	at := func(name string) (when time.Time) {
		text, err := os.ReadFile(filepath.Join(m.Disk, "order", name))
		if err != nil {
			return time.Time{}
		}
		if when, err = time.Parse(time.RFC3339Nano, strings.TrimSpace(string(text))); err != nil {
			t.Errorf("the file of the hook of %s is %q, which is not a single time", name, text)
		}
		return when
	}
	m.Await("the first hook", func() bool { return !at("first").IsZero() })
	m.Kill()
	if <-cut == nil {
		t.Error("islet shutdown succeeded though the agent was killed")
	}
	os.Remove(filepath.Join(m.Disk, "order", "first")) // a hook runs at least once, so it runs again
	m.StartAgent()
	m.Write("manifests/new.yaml", manifest("new", "", "sleep"))
	if err := openrc(); err != nil {
		t.Error(err)
	}
	if a, b := at("first"), at("last"); b.Sub(a) < time.Second {
		t.Errorf("first began to end at %v, last at %v", a, b)
	}
	if all := m.ContainerProcesses(); len(all) > 0 {
		t.Errorf("processes still run: %v", all)
	}
	m.WaitPods("the new pod to be refused", func(pods map[string]machine.Pod) bool { return pods["new-edge"].Status.Reason == "NodeShutdown" })
	for name, phase := range map[string]string{"first": "Running", "last": "Running", "job": "Running", "once": "Failed"} {
		if p := m.Pods()[name+"-edge"]; p.Status.Phase != phase || p.Status.Reason != "Terminated" || p.Ready() {
			t.Errorf("%s is %+v", name, p.Status)
		}
	}

	m.PowerOff()
	m.Boot()
	m.StartAgent()
	m.WaitPods("the pods to run again, the new one at last, and the one that may not run twice to have failed", func(pods map[string]machine.Pod) bool {
		once := pods["once-edge"]
		delete(pods, "once-edge")
		return areReady(pods, []string{"first-edge", "last-edge", "job-edge", "new-edge"}) && once.Status.Phase == "Failed"
	})
}
