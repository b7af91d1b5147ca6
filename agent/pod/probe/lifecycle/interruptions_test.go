package lifecycle

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/islet-edge/islet/agent/pod/plan"
)

func readInterruptions(t *testing.T, state string) *Interruptions {
	t.Helper()
	s, err := ReadInterruptions(state)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mark(t *testing.T, s *Interruptions, id string, kind plan.Interruption, stores bool) {
	t.Helper()
	if err := s.MarkInterrupted(t.Context(), id, kind, stores); err != nil {
		t.Fatal(err)
	}
}

func names(t *testing.T, state string) (out []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(state, "interrupted", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range paths {
		out = append(out, filepath.Base(p))
	}
	return out
}

// TestInterruptions checks that the next agent knows the stored interruptions, with the highest kind of each container. They are removed
// with their containers, and a node that stores none has no directory.
func TestInterruptions(t *testing.T) {
	state, run := t.TempDir(), t.TempDir()
	h := openHooks(t, Config{Dir: run, State: state})
	mark(t, h.Interruptions, "memory", plan.Replaced, false)
	if _, err := os.Stat(filepath.Join(state, "interrupted")); !errors.Is(err, os.ErrNotExist) || h.Interruption("memory") != plan.Replaced {
		t.Errorf("the directory: %v", err)
	}
	mark(t, h.Interruptions, "a.b", plan.CutOff, true)
	mark(t, h.Interruptions, "twice", plan.CutOff, true)
	mark(t, h.Interruptions, "twice", plan.Replaced, true)
	mark(t, h.Interruptions, "twice", plan.CutOff, true)
	mark(t, h.Interruptions, "gone", plan.CutOff, true)
	mark(t, h.Interruptions, "removed", plan.Replaced, true)
	if err := h.Forget("removed"); err != nil || h.Interruption("removed") != 0 {
		t.Errorf("%v, %v", err, h.Interruption("removed"))
	}
	unknown := filepath.Join(state, "interrupted", ".replaced.x.new") // a killed process has left it
	if err := os.WriteFile(unknown, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h = openHooks(t, Config{Dir: run, State: state})
	for id, want := range map[string]plan.Interruption{"a.b": plan.CutOff, "twice": plan.Replaced, "memory": 0, "removed": 0, "x": 0, "": 0} {
		if got := h.Interruption(id); got != want {
			t.Errorf("%q: %v, want %v", id, got, want)
		}
	}
	if err := h.Prune(func(id string) bool { return id != "gone" }); err != nil {
		t.Error(err)
	}
	if got := len(names(t, state)); got != 3 {
		t.Errorf("files %q", names(t, state))
	}
	if err := errors.Join(h.Forget("twice"), h.Forget("a.b")); err != nil || len(names(t, state)) > 0 {
		t.Errorf("%v, files %q", err, names(t, state))
	}
	if _, err := os.Lstat(unknown); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the temporary file: %v", err)
	}
	for _, id := range []string{"", ".", "..", "../x", "/etc/x", "a/b", "a\x00"} {
		if err := h.MarkInterrupted(t.Context(), id, plan.CutOff, true); err == nil || h.Interruption(id) != plan.CutOff {
			t.Errorf("%q: %v, %v", id, err, h.Interruption(id))
		}
		if err := h.MarkInterrupted(t.Context(), id, plan.CutOff, false); err == nil {
			t.Errorf("%q is accepted", id)
		}
	}
	if all, err := filepath.Glob(filepath.Join(state, "*", "*")); err != nil || len(all) > 0 {
		t.Errorf("files %v, %v", all, err)
	}
}

// TestInterruptionsUnreadable checks that the agent starts although it cannot read the records. It stores new records, and the caller that
// computes final statuses gets an error.
func TestInterruptionsUnreadable(t *testing.T) {
	state := t.TempDir()
	if err := os.WriteFile(filepath.Join(state, "interrupted"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h := openHooks(t, Config{State: state})
	if err := h.MarkInterrupted(t.Context(), "a", plan.Replaced, true); err == nil || h.Interruption("a") != plan.Replaced {
		t.Errorf("%v, %v", err, h.Interruption("a"))
	}
	if _, err := ReadInterruptions(state); err == nil {
		t.Error("no error")
	}
}

// TestInterruptionsFullDisk checks that a record that cannot be stored is kept in memory, and is stored when the stop is repeated.
func TestInterruptionsFullDisk(t *testing.T) {
	state := t.TempDir()
	s := readInterruptions(t, state)
	s.store = func(string) error { return syscall.ENOSPC }
	err := s.MarkInterrupted(t.Context(), "a", plan.Replaced, true)
	if !errors.Is(err, syscall.ENOSPC) || s.Interruption("a") != plan.Replaced {
		t.Errorf("%v, %v", err, s.Interruption("a"))
	}
	s.store = storeEmptyFile
	mark(t, s, "a", plan.Replaced, true)
	if got := readInterruptions(t, state).Interruption("a"); got != plan.Replaced {
		t.Errorf("stored: %v", got)
	}
}

// TestInterruptionsHungDisk checks that a disk that hangs delays a stop once, for a limited time, and does not block the workers. If the
// write ends after the removal of the container, no file stays.
func TestInterruptionsHungDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := t.TempDir()
		s := readInterruptions(t, state)
		hung := make(chan struct{})
		s.store = func(path string) error { <-hung; return storeEmptyFile(path) }
		began := time.Now()
		if err := s.MarkInterrupted(t.Context(), "a", plan.CutOff, true); err == nil || time.Since(began) != storeTimeout {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		mark(t, s, "a", plan.CutOff, true) // the repeated stop
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.MarkInterrupted(ctx, "b", plan.CutOff, true); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if got := time.Since(began); got != storeTimeout || s.Interruption("a") != plan.CutOff || s.Interruption("b") != plan.CutOff {
			t.Errorf("after %v: %v, %v", got, s.Interruption("a"), s.Interruption("b"))
		}
		if err := s.forget("a"); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
		close(hung)
		synctest.Wait()
		if got := names(t, state); len(got) != 1 || got[0] != "cut-off.b" {
			t.Errorf("files %q", got)
		}
	})
}
