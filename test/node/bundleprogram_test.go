package node

import (
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// TestBundleProgram applies bundles that have another version of islet. The version is tried first and stays, also if the pods of the
// bundle fail. A bundle with a version that fails, or that the keys for updates have not signed, is not used. Pods keep running.
func TestBundleProgram(t *testing.T) {
	t.Parallel()
	u := bootUpdates(t)
	m := u.m
	b := &bundles{t, m}
	b.configure("update: {keys: [" + u.Public + "]}\n")
	m.StartAgent()
	if err := os.MkdirAll(m.Disk+"/kiosk/islet", 0o755); err != nil {
		t.Fatal(err)
	}
	archive := m.Disk + "/kiosk/islet/islet.tar.gz"
	one, two := manifest("one", "", "count", "100ms"), manifest("two", "", "count", "100ms")
	bad := strings.Replace(manifest("bad", "", "exit", "1"), "Never", "Always", 1)

	u.Release(archive, "9.1.0", u.BuildVersion("9.1.0"))
	out, code := m.Try("bundle", "apply", "--wait", b.build(1, "anna.key", map[string]string{"one": one, "bad": bad}))
	if code != 1 || !strings.Contains(out, "version 9.1.0 is installed and runs") || !strings.Contains(out, "kiosk number 1 was not kept") {
		t.Errorf("a bundle whose pod fails: code %d, %s", code, out)
	}
	if out := m.Islet("version"); !strings.Contains(out, "9.1.0") {
		t.Errorf("the version did not stay: %s", out)
	}
	out = m.Islet("bundle", "apply", "--wait", b.build(2, "anna.key", map[string]string{"one": one, "two": two}))
	if strings.Contains(out, "9.1.0") || !strings.Contains(out, "kiosk number 2 is in use") {
		t.Errorf("a bundle with the running version: %s", out)
	}
	u.ids = containers(m.WaitReady("one", "two"))

	u.Release(archive, "9.2.0", u.fails("9.2.0", "crash"))
	out, code = m.Try("bundle", "apply", b.build(3, "anna.key", map[string]string{"one": one}))
	if code != 1 || !strings.Contains(out, "version 9.2.0 failed") && !strings.Contains(out, "fails its self-test") {
		t.Errorf("a bundle with a version that fails: code %d, %s", code, out)
	}
	stranger := machine.NewReleaser(t)
	stranger.Release(archive, "9.3.0", u.fails("9.3.0", "crash"))
	b.refuse("signed by 0 of the node's keys", b.build(4, "anna.key", map[string]string{"one": one}))
	b.inUse(2)
	if out := m.Islet("version"); !strings.Contains(out, "9.1.0") {
		t.Errorf("another version runs: %s", out)
	}
	if now := containers(m.WaitReady("one", "two")); !maps.Equal(now, u.ids) {
		t.Errorf("containers were %v, are %v", u.ids, now)
	}
}
