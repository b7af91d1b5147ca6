package sources

import (
	"fmt"
	"os"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/internal/event"
	"github.com/islet-edge/islet/internal/eventtest"
)

func TestMain(m *testing.M) { os.Exit(eventtest.Main(m, "sources")) }

// A recorder keeps the texts of events.
type recorder struct {
	event.Discard
	texts []string
}

func (r *recorder) Node(kind, reason, message string) {
	eventtest.RecordEvent(kind, reason, message)
	if kind != v1.EventTypeWarning || reason != ManifestRefused {
		message = "not expected: " + kind + " " + reason
	}
	r.texts = append(r.texts, message)
}

// TestAnnounce checks that a problem of a manifest causes one event as long as it lasts, and another one when it returns.
func TestAnnounce(t *testing.T) {
	r := &recorder{}
	a := New(Config{Events: r}).announce
	bad := desired.Problem{Origin: "/m/x.yaml", Field: "spec.containers", Message: "Required value"}
	other := desired.Problem{Origin: "/m/y.yaml", Message: "yaml: line 1"}
	a.announce(desired.File, []desired.Problem{bad, bad})
	a.announce(desired.File, []desired.Problem{bad, other, {Message: "the disk is full"}})
	a.announce(desired.HTTP, nil)
	a.announce(desired.File, []desired.Problem{bad})
	a.announce(desired.File, nil)
	a.announce(desired.File, []desired.Problem{bad})
	want := "/m/x.yaml: spec.containers: Required value\n/m/y.yaml: yaml: line 1\n/m/x.yaml: spec.containers: Required value"
	if got := strings.Join(r.texts, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	r.texts = nil
	many := make([]desired.Problem, 50)
	for i := range many {
		many[i] = desired.Problem{Origin: fmt.Sprint("/m/", i), Message: strings.Repeat("é", 1000)}
	}
	a.announce(desired.File, many)
	n := len(r.texts)
	if n != maxAnnounced+1 || r.texts[n-1] != "file: 40 more problems: see islet status" || len(r.texts[0]) > maxEventText+20 {
		t.Errorf("%d events: %.100q", n, r.texts)
	}
}
