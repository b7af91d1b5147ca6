package node

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/islet-edge/islet/agent/cli/command"
)

// TestBusyAgent asks for a backup. An agent that does not answer in time still runs, so the command does not read the files itself.
func TestBusyAgent(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	tl := &command.Tool{Socket: socket, Env: command.Env{Getenv: func(string) string { return "" }, ResponseTimeout: time.Millisecond}}
	for _, runs := range []bool{false, true} {
		if runs {
			l, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
		}
		tl.Backup = func(_ context.Context, _ string, _ []string, _ *command.Tool, ask command.AskBackup) int {
			if _, silent, err := ask(socket, nil); err == nil || silent == runs {
				t.Errorf("runs %v: silent %v, %v", runs, silent, err)
			}
			return command.ExitOK
		}
		if err := Backup(tl, nil)(t.Context(), nil); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}
