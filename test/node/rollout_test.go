package node

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestRollout checks that a node that follows an index takes a version only when its ring is open and the rollout is not paused, and
// never a version that has failed. The office opens the next ring after the report of the node. It pauses the rollout after the report of a
// failure, also of a self-test that always crashes. An operator at the node need not wait for a ring.
func TestRollout(t *testing.T) {
	t.Parallel()
	u := bootUpdates(t)
	office := u.m.Disk + "/office"
	index, archive := office+"/islet.index", office+"/islet.tar.gz"
	if err := os.Mkdir(office, 0o755); err != nil {
		t.Fatal(err)
	}
	u.m.Write("office/rings.yaml", "rings:\n- {name: first, selector: '!museum', minSucceeded: 1}\n- {name: rest}\n")
	// begin begins the rollout of a version.
	begin := func(version string, program []byte) {
		t.Helper()
		u.Release(archive, version, program)
		u.office("index", index, office+"/rings.yaml", u.Key, archive)
	}
	// advance runs the command of the office with the report of the node. It succeeds also if the rollout is paused, so that a script copies
	// the index.
	advance := func() string {
		t.Helper()
		report := u.m.Islet("bundle", "status", "-o", "json")
		var state struct{ Key string }
		if err := json.Unmarshal([]byte(report), &state); err != nil {
			t.Fatalf("%v\n%s", err, report)
		}
		u.m.Write("office/reports.json", report)
		u.m.Write("office/nodes.keys", state.Key+"\n")
		return u.office("rollout", index, "--nodes", office+"/nodes.keys", "--key", u.Key, office+"/reports.json")
	}
	begin("9.1.0", u.BuildVersion("9.1.0"))
	u.office("rollout", index, "--key", u.Key, "--pause", "wait for the holidays")
	u.start(quickly, fmt.Sprintf("{keys: [%s], index: %s, every: 1m}", u.Public, index))
	was := strings.Fields(u.m.Islet("version"))[1]
	// stays waits until the node has looked at the index.
	stays := func(version string, texts ...string) {
		t.Helper()
		u.m.Await("the state "+strings.Join(texts, ", "), func() bool {
			out, _ := u.m.Try("update", "status")
			for _, text := range texts {
				if !strings.Contains(out, text) {
					return false
				}
			}
			return true
		})
		u.as(version)
	}
	// look makes the node look at the index now, and not only after a minute.
	look := func() {
		u.m.Kill()
		u.m.StartAgent()
	}
	stays(was, "Offered:   9.1.0", "Ring:      first", "State:     paused", "wait for the holidays")
	if out := advance(); !strings.Contains(out, "is paused") {
		t.Error(out)
	}
	u.office("rollout", index, "--key", u.Key, "--resume")
	look()
	if why := u.ended("9.1.0"); why != "" {
		t.Errorf("9.1.0 failed: %s", why)
	}
	stays("9.1.0", "State:     installed")
	if out := advance(); !strings.Contains(out, "ring rest: opened") {
		t.Errorf("the next ring is not open:\n%s", out)
	}

	begin("9.2.0", u.fails("9.2.0", "crash"))
	look()
	if why := u.ended("9.2.0"); why == "" {
		t.Error("9.2.0 was kept")
	}
	look()
	stays("9.1.0", "Offered:   9.2.0", "State:     refused")
	if out := advance(); !strings.Contains(out, "failed: edge (first)") || !strings.Contains(out, "ring first: 1 node failed") {
		t.Errorf("no pause after a failure:\n%s", out)
	}

	begin("9.2.1", u.fails("9.2.1", "testcrash"))
	for i := range 3 { // also over restarts of the agent
		look()
		u.m.Await("the end of a self-test", func() bool {
			s, _ := show(u.m)
			tests := 0
			for _, h := range s.History {
				if strings.HasPrefix(h.ID, "islet-9.2.1-") {
					tests++
				}
			}
			return tests == i+1
		})
		u.as("9.1.0")
		out := advance()
		if isNote := strings.Contains(out, "note: edge (first): a self-test had no result"); isNote != (i < 2) ||
			strings.Contains(out, "is paused") == isNote {
			t.Errorf("after self-test %d:\n%s", i, out)
		}
	}
	look()
	stays("9.1.0", "Offered:   9.2.1", "State:     refused")

	u.m.Write("office/rings.yaml", "rings:\n- {name: first, selector: 'site=elsewhere', minSucceeded: 1}\n- {name: rest}\n")
	begin("9.3.0", u.BuildVersion("9.3.0"))
	look()
	stays("9.1.0", "Ring:      rest", "State:     waiting")
	if out := u.m.Islet("update", archive); !strings.Contains(out, "version 9.3.0 is installed and runs") {
		t.Errorf("by a person: %s", out)
	}
	u.as("9.3.0")
}

// office runs packaging/sign.
func (u *updates) office(args ...string) string {
	u.Helper()
	out, err := u.RunSign(args...)
	if err != nil {
		u.Fatalf("sign %q: %v\n%s", args, err, out)
	}
	return out
}
