package led_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/islet-edge/islet/internal/led"
)

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// TestLED checks that the LED gets back the trigger that it had before the first stick.
func TestLED(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "act", "trigger")
	must(t, os.Mkdir(filepath.Dir(file), 0o755), os.WriteFile(file, []byte("none [mmc0] timer default-on\n"), 0o600))
	l := led.New(dir, "act")
	want := func(text string) {
		t.Helper()
		if got, err := os.ReadFile(file); err != nil || string(got) != text {
			t.Errorf("%q, %v, want %q", got, err, text)
		}
	}
	must(t, l.Restore())
	want("none [mmc0] timer default-on\n")
	must(t, l.Set(led.Blinking))
	want("timer")
	must(t, l.Set(led.On))
	want("default-on")
	must(t, l.Restore(), l.Restore())
	want("mmc0")
	if err := led.New(dir, "missing").Set(led.On); err == nil {
		t.Error("a missing LED was set")
	}
	if err := led.New(dir, "missing").Check(); err == nil {
		t.Error("a missing LED exists")
	}
	must(t, l.Check(), led.New(dir, "").Check())
	if _, err := os.Stat(filepath.Join(dir, "missing")); err == nil {
		t.Error("a file was made")
	}
	must(t, led.New(dir, "").Set(led.On), led.New(dir, "").Restore())
}
