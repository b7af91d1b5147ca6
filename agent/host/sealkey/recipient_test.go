package sealkey

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/agent/host/process"
	"github.com/islet-edge/islet/edge/keyfile"
	"github.com/islet-edge/islet/internal/bundle/sealed"
	"github.com/islet-edge/islet/internal/config"
)

// TestRecipient checks that recipient makes a key at its first use, but not while an agent runs, that it prints the recipient of this key
// afterwards, also while an agent runs, and that it prints nothing for a damaged key.
func TestRecipient(t *testing.T) {
	t.Parallel() // the attempt while an agent runs waits for its end
	state, run := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(state, process.Database), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	recipient := func(code int) string {
		t.Helper()
		var out, errs bytes.Buffer
		got := Main([]string{"recipient"}, Env{Stdout: &out, Stderr: &errs, Load: func([]string) (*config.Config, []config.Notice, error) {
			return &config.Config{Dirs: config.Dirs{State: state, Run: run}}, nil, nil
		}})
		if got != code || (code == 0) != (errs.Len() == 0) || (code == 0) != (out.Len() > 0) {
			t.Errorf("code %d, want %d: %q, %q", got, code, out.String(), errs.String())
		}
		return out.String()
	}
	place := keyfile.Place{Dir: state}
	locks, err := process.Lock(run)
	if err != nil {
		t.Fatal(err)
	}
	recipient(1)
	if place.Status().Exists {
		t.Error("a key was made beside an agent")
	}
	if err := locks.Close(); err != nil {
		t.Fatal(err)
	}
	first := recipient(0)
	if _, err := sealed.Recipients(first); err != nil || strings.Count(first, "\n") != 1 || !place.Status().Exists {
		t.Errorf("%q, %v", first, err)
	}
	locks, err = process.Lock(run)
	if err != nil {
		t.Fatal(err)
	}
	if again := recipient(0); again != first {
		t.Errorf("%q instead of %q", again, first)
	}
	if err := errors.Join(locks.Close(), os.WriteFile(place.Path(), []byte("short"), 0o600)); err != nil {
		t.Fatal(err)
	}
	recipient(1)
}
