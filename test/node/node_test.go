// Package node tests a standalone node end to end. The tests use the real binary and real containers. Each test has a separate machine.
package node

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/hungfs"
	"github.com/islet-edge/islet/test/machine"
)

func TestMain(m *testing.M) {
	hungfs.Main()
	machine.Main()
	os.Exit(m.Run())
}

// bootMachine returns a machine that is on, with the test image and without an agent.
func bootMachine(t *testing.T) *machine.Machine {
	t.Helper()
	m := machine.New(t, "edge")
	m.InstallImage()
	m.Boot()
	return m
}

// manifest returns a pod with one container that runs podtool.
func manifest(name, extra string, args ...string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - name: c
    image: %s
    imagePullPolicy: Never
    args: ["%s"]
%s`, name, machine.Image, strings.Join(args, `", "`), extra)
}

func TestFirstPod(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	m.Write("manifests/one.yaml", manifest("one", "", "count", "100ms"))
	m.StartAgent()
	pod := m.WaitReady("one-edge")["one-edge"]
	if pod.Status.Phase != "Running" || !strings.HasPrefix(pod.Status.PodIP, "10.42.0.") {
		t.Errorf("status is %+v", pod.Status)
	}
	if id := pod.Status.ContainerStatuses[0].ImageID; !strings.HasPrefix(id, "localhost/podtool@sha256:") {
		t.Errorf("image ID is %q", id)
	}
	m.Await("the log to have two lines", func() bool { return strings.HasPrefix(m.Islet("logs", "one-edge"), "0\n1\n") })
	if out := m.Islet("exec", "one-edge", "--", "/podtool", "cat", "/etc/hostname"); out != "one-edge\n" {
		t.Errorf("host name is %q", out)
	}
	m.Remove("manifests/one.yaml")
	m.WaitReady()
}
