package node

import (
	"bytes"
	"io"
	"testing"

	"github.com/islet-edge/islet/agent/cli/terminal"
)

// TestSeverities checks that the first word of a finding has the colour of its severity.
func TestSeverities(t *testing.T) {
	var doc bytes.Buffer
	io.WriteString(&severityWriter{w: &doc}, "error    x\n   -> errors\nok       y\n\nwarning  z\n")
	if want := string(terminal.Red) + "error" + terminal.EndColour + "    x\n   -> errors\n" +
		string(terminal.Green) + "ok" + terminal.EndColour + "       y\n\n" +
		string(terminal.Yellow) + "warning" + terminal.EndColour + "  z\n"; doc.String() != want {
		t.Errorf("got %q, want %q", doc.String(), want)
	}
}
