package node

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// TestAttention checks four problems of a node: a refused manifest, a host port that a program of the host uses, an image that nobody can
// pull, and a container in back-off with its exit code and the last line of its log. The output of islet status, its JSON and the events
// must contain all four. The exit code of islet status must be 1.
func TestAttention(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	m.Write("manifests/well.yaml", manifest("well", "", "sleep"))
	m.StartAgent()
	m.WaitReady("well-edge")
	if out, code := m.Try("status"); code != 0 {
		t.Errorf("a healthy node: code %d\n%s", code, out)
	}
	m.Write("manifests/refused.yaml", strings.Replace(manifest("refused", "", "sleep"), "image:", "imago:", 1))
	// The agent listens at port 10248 of the host.
	m.Write("manifests/port.yaml", manifest("port", "    ports: [{containerPort: 80, hostPort: 10248}]\n", "sleep"))
	m.Write("manifests/image.yaml", strings.Replace(manifest("image", "", "sleep"), machine.Image, "localhost/none:1", 1))
	m.Write("manifests/crash.yaml", manifest("crash", "", "node", "none"))
	want := []string{"refused.yaml", "host port 10248/TCP", "ErrImageNeverPull", "container c: CrashLoopBackOff: exit code ", "the last line of its log: ",
		"islet logs crash-edge"}
	has := func(text string) bool {
		for _, w := range want {
			if !strings.Contains(text, w) {
				return false
			}
		}
		return true
	}
	out, code := "", 0
	m.Await("everything that needs attention", func() bool {
		out, code = m.Try("status")
		return code == 1 && has(out)
	})
	out, code = m.Try("status", "-o", "json")
	var st struct {
		Attention []struct{ Text, Command string }
	}
	start := strings.Index(out, "{")
	if start < 0 {
		t.Fatalf("code %d: %s", code, out)
	}
	if err := json.NewDecoder(strings.NewReader(out[start:])).Decode(&st); err != nil || code != 1 {
		t.Fatalf("code %d, %v\n%s", code, err, out)
	}
	text := ""
	for _, a := range st.Attention {
		text += a.Text + " " + a.Command + "\n"
	}
	if !has(text) {
		t.Errorf("as JSON:\n%s", text)
	}
	events := m.Islet("events", "--warnings")
	for _, reason := range []string{"ManifestRefused", "HostPortConflict", "ErrImageNeverPull", "BackOff"} {
		if !strings.Contains(events, reason) {
			t.Errorf("no event %s:\n%s", reason, events)
		}
	}
}
