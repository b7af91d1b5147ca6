package medium

import (
	"os"
	"path/filepath"
	"testing"
)

// TestLED checks that the LED gets back the trigger that it had before the first stick.
func TestLED(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "act", "trigger")
	must(t, os.Mkdir(filepath.Dir(file), 0o755), os.WriteFile(file, []byte("none [mmc0] timer default-on\n"), 0o600))
	l := newLED(dir, "act")
	want := func(text string) {
		t.Helper()
		if got, err := os.ReadFile(file); err != nil || string(got) != text {
			t.Errorf("%q, %v, want %q", got, err, text)
		}
	}
	must(t, l.restore())
	want("none [mmc0] timer default-on\n")
	must(t, l.set(blinking))
	want("timer")
	must(t, l.set(on))
	want("default-on")
	must(t, l.restore(), l.restore())
	want("mmc0")
	if err := newLED(dir, "missing").set(on); err == nil {
		t.Error("a missing LED was set")
	}
	if _, err := os.Stat(filepath.Join(dir, "missing")); err == nil {
		t.Error("a file was made")
	}
	must(t, newLED(dir, "").set(on), newLED(dir, "").restore())
}
