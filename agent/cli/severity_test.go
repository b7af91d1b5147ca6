package cli

import (
	"bytes"
	"io"
	"testing"
)

// TestSeverities checks that the first word of a finding has the colour of its severity.
func TestSeverities(t *testing.T) {
	var doc bytes.Buffer
	io.WriteString(&severityWriter{w: &doc}, "error    x\n   -> errors\nok       y\n\nwarning  z\n")
	if want := string(red) + "error" + endColour + "    x\n   -> errors\n" + string(green) + "ok" + endColour + "       y\n\n" +
		string(yellow) + "warning" + endColour + "  z\n"; doc.String() != want {
		t.Errorf("got %q, want %q", doc.String(), want)
	}
}
