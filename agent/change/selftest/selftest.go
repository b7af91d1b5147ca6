package selftest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/islet-edge/islet/agent/change/update"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/runtime/shim"
)

// Main checks, in a temporary directory, that the database can be opened and written and that the shim can be
// unpacked. It also checks that the configuration of the agent that runs it is valid. It returns the exit code.
func Main(version string, stdout, stderr io.Writer) int {
	if err := run(); err != nil {
		fmt.Fprintln(stderr, "islet:", err)
		return 1
	}
	fmt.Fprintln(stdout, update.SelfTestOutput(version))
	return 0
}

func run() error {
	dir, err := os.MkdirTemp("", "islet-self-test-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
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
	if _, err = shim.Unpack(dir); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return checkConfiguration(self, fmt.Sprintf("/proc/%d", os.Getppid()))
}
