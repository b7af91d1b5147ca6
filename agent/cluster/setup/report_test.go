package setup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTell checks that tell does not write to a regular file, and that a FIFO or a terminal that nobody reads does not block it.
func TestTell(t *testing.T) {
	file := filepath.Join(t.TempDir(), "console")
	must(t, os.WriteFile(file, []byte("before"), 0o600))
	tell(file, "x")
	tell(file+".missing", "x")
	if text, err := os.ReadFile(file); err != nil || string(text) != "before" {
		t.Errorf("%q, %v", text, err)
	}
	fifo := file + ".fifo"
	must(t, unix.Mkfifo(fifo, 0o600))
	tell(fifo, "x")
	_, tty := terminal(t)
	for range 5 { // more than the terminal stores
		tell(tty, strings.Repeat("x", maxReport))
	}
}
