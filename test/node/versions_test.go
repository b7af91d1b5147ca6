package node

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// TestVersions updates from an earlier version to this version and back several times. Each version must continue the containers, shims,
// logs and records of the other version. The environment variable ISLET_OLD contains the path of the earlier program.
func TestVersions(t *testing.T) {
	t.Parallel()
	file := os.Getenv("ISLET_OLD")
	if file == "" {
		t.Skip("no earlier program to go back to: set ISLET_OLD (make test-versions and test-long do)")
	}
	old, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	u := bootUpdates(t)
	u.every = "10ms" // the test looks for gaps in the log
	if err := os.WriteFile(u.m.Binary(), old, 0o755); err != nil {
		t.Fatal(err)
	}
	u.start(quickly, "{keys: ["+u.Public+"]}")
	was := strings.Fields(u.m.Islet("version"))[1]
	type program struct {
		version string
		text    []byte
	}
	at := map[bool]program{false: {was, old}, true: {"9.1.0", u.BuildVersion("9.1.0")}}
	newer := false
	turn := func() {
		t.Helper()
		newer = !newer
		to := at[newer]
		if out, code := u.m.Try("update", "--older", u.archive(to.version, to.text)); code != 0 ||
			!strings.Contains(out, "version "+to.version+" is installed and runs") {
			t.Fatalf("from the other version to %s: code %d: %s\n%s", to.version, code, out, u.m.AgentLog(50))
		}
		if out, _ := u.m.Try("status"); !strings.Contains(out, "islet "+to.version+",") {
			t.Errorf("version %s does not run:\n%s", to.version, out)
		}
		if now := containers(u.m.WaitReady(slices.Sorted(maps.Keys(u.ids))...)); !maps.Equal(now, u.ids) {
			t.Errorf("with version %s containers are %v, were %v", to.version, now, u.ids)
		}
	}
	works := func(pods ...string) {
		t.Helper()
		for _, pod := range pods {
			if out, code := u.m.Try("exec", pod, "--", "/podtool", "cat", "/etc/hostname"); out != pod+"\n" {
				t.Errorf("exec in %s: code %d: %s", pod, code, out)
			}
		}
		noGap(t, u.m.Islet("logs", "one-edge"))
	}
	works("one-edge", "two-edge")
	turn()
	works("one-edge", "two-edge")
	u.m.Write("manifests/three.yaml", manifest("three", "", "count", "100ms"))
	u.ids = containers(u.m.WaitReady("one-edge", "two-edge", "three-edge"))
	turn()
	works("one-edge", "two-edge", "three-edge")
	u.m.Kill()
	u.m.StartAgent()
	u.as(was) // as also checks that no container has restarted
	u.m.Remove("manifests/two.yaml")
	u.m.WaitPods("the pod that began under this version to end", func(pods map[string]machine.Pod) bool {
		_, there := pods["two-edge"]
		return !there
	})
	u.m.Write("manifests/two.yaml", manifest("two", "", "serve", ":8080"))
	u.ids = containers(u.m.WaitReady("one-edge", "two-edge", "three-edge"))
	turn()
	works("one-edge", "two-edge", "three-edge")
	u.m.Remove("manifests/three.yaml") // this version started the pod, and the other one adopted it
	pods := u.m.WaitPods("the pod that began under this version to end", func(pods map[string]machine.Pod) bool {
		_, there := pods["three-edge"]
		return !there
	})
	u.ids = containers(pods)
	for range 2 { // a reboot after each of the two versions
		u.m.PowerOff()
		u.m.Boot()
		u.m.StartAgent()
		before := u.ids
		u.ids = containers(u.m.WaitReady("one-edge", "two-edge"))
		if maps.Equal(before, u.ids) {
			t.Errorf("containers survived a power failure: %v", u.ids)
		}
		turn()
		works("two-edge")
	}
}
