package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

const classed = `apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  runtimeClassName: CLASS
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: IMAGE, imagePullPolicy: Never, args: [sleep]}
`

// TestRuntimeClassOfStaticPods: a static pod's runtimeClassName is the name of a
// handler; one that is not configured is refused with the names of those that are.
func TestRuntimeClassOfStaticPods(t *testing.T) {
	m := machine.New(t, "edge")
	m.InstallImage()
	m.Boot()
	program, calls := m.OCIWrapper("boxed")
	m.Handlers(map[string]string{"boxed": program})
	for name, class := range map[string]string{"good": "boxed", "bad": "kata"} {
		m.Write("manifests/"+name+".yaml", strings.NewReplacer("NAME", name, "CLASS", class, "IMAGE", machine.Image).Replace(classed))
	}
	m.StartAgent()
	m.WaitPods("the pod of a known class to run, and the other to be refused", func(pods map[string]machine.Pod) bool {
		return pods["good-edge"].Ready() && strings.Contains(m.Islet("describe", "bad-edge"), "FailedCreatePodSandBox")
	})
	events := m.Islet("describe", "bad-edge")
	if !strings.Contains(events, `no runtime for "kata" is configured: this node has "boxed"`) {
		t.Errorf("the events are\n%s", events)
	}
	if calls("create")+calls("run") == 0 {
		t.Error("the pod was run by another program")
	}
	links := filepath.Join(m.Disk, "state", "container-logs")
	if names := m.Files(links); len(names) != 1 || !strings.HasPrefix(names[0], "good-edge_default_c-") {
		t.Errorf("the links for log shippers are %q", names)
	} else if _, err := os.Stat(filepath.Join(links, names[0])); err != nil {
		t.Errorf("the link leads to no log: %v", err)
	}
	if n := m.Containers(); n != 1 {
		t.Errorf("%d containers run", n)
	}
}
