package selfcheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/islet-edge/islet/agent/change/update"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/runtime/mounts"
	"github.com/islet-edge/islet/runtime/shim"
)

// Main checks, in a temporary directory, that the database can be opened and written and that the shim can be
// unpacked. It also checks that this version accepts the configuration of the agent that started the self-test. It returns the exit code,
// which is update.UnfitExit if the program does not fit.
func Main(version string, stdout, stderr io.Writer) int {
	if err := run(); err != nil {
		fmt.Fprintln(stderr, "islet:", err)
		return exitCode(err)
	}
	fmt.Fprintln(stdout, update.SelfTestOutput(version))
	return 0
}

// An unfitError means that this program does not fit this machine or its configuration. Any other error may have a temporary cause on the
// machine, such as a full disk.
type unfitError struct{ error }

func (e unfitError) Unwrap() error { return e.error }

func exitCode(err error) int {
	if errors.As(err, new(unfitError)) {
		return update.UnfitExit
	}
	return 1
}

func run() error {
	dir, err := os.MkdirTemp("", "islet-self-test-")
	if err != nil {
		return err
	}
	defer func() { _ = mounts.RemoveAll(dir) }()
	ctx := context.Background()
	s, err := store.Open(ctx, filepath.Join(dir, "islet.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	if err := s.SetMeta(ctx, "self-test", "passed"); err != nil {
		return err
	}
	if err := s.Close(); err != nil {
		return err
	}
	if _, err = shim.Unpack(dir); errors.Is(err, shim.ErrNotBuilt) {
		return unfitError{err}
	} else if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return checkConfiguration(self, fmt.Sprintf("/proc/%d", os.Getppid()))
}
