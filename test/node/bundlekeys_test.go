package node

import (
	"strings"
	"testing"
)

// TestBundleKeys applies a bundle that replaces the keys of the node, with its consent: afterwards two other persons must sign. The node
// then refuses a bundle of the first person, and one with a single signature, also after a loss of power. It does not return to the
// removed key.
func TestBundleKeys(t *testing.T) {
	t.Parallel()
	b := newBundles(t)
	m := b.m
	b.replaceInEdge("deadline: 15s}", "deadline: 15s, consent: [edge.bundle]}")
	m.StartAgent()
	pods := func(name string) map[string]string {
		return map[string]string{"one": manifest("one", "", "count", "100ms"), name: manifest(name, "", "sleep")}
	}
	put := func(number int, file, pod string) {
		t.Helper()
		m.Islet("bundle", "apply", "--wait", "-q", file)
		b.inUse(number)
		m.WaitReady("one", pod)
	}
	put(1, b.build(1, "anna.key", pods("first")), "first")
	ben := strings.TrimSpace(m.Islet("bundle", "keys", "show", m.Disk+"/ben.key"))
	carl := strings.TrimSpace(m.Islet("bundle", "keys", "new", m.Disk+"/carl.key"))
	ben = ben[strings.LastIndex(ben, "islet-ed25519"):]
	m.Write("kiosk/edge.yaml", "apiVersion: islet.dev/v1beta1\nkind: EdgeConfiguration\n"+
		"bundle: {keys: ['"+ben+"', '"+carl+"'], threshold: 2, healthyFor: 2s, deadline: 10s}\n")
	put(2, b.build(2, "anna.key", pods("second")), "second")
	for _, when := range []string{"at once", "after a loss of power"} {
		b.refuse("signed by 0 of the node's keys", b.build(3, "anna.key", pods("third")))
		b.refuse("signed by 1 of the node's keys", b.build(3, "ben.key", pods("third")))
		if out, code := m.Try("bundle", "revert"); code != 1 || !strings.Contains(out, "bundle.keys") {
			t.Errorf("%s: a revert: code %d, %s", when, code, out)
		}
		b.inUse(2)
		if when == "at once" {
			m.PowerOff()
			m.Boot()
			m.StartAgent()
			m.WaitReady("one", "second")
		}
	}
	file := b.build(3, "ben.key", pods("third"))
	m.Islet("bundle", "sign", file, "--key", m.Disk+"/carl.key")
	put(3, file, "third")
}
