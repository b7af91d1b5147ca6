package cli

import (
	"context"
	"io"

	"github.com/spf13/pflag"
)

// Commands about the host need no agent; package agent carries them out.

func setupDoctor(t *tool, _ *pflag.FlagSet) runner  { return onHost(t, t.Doctor) }
func setupCleanup(t *tool, _ *pflag.FlagSet) runner { return onHost(t, t.Cleanup) }

func onHost(t *tool, do func(ctx context.Context, args []string, stdout, stderr io.Writer) int) runner {
	return func(ctx context.Context, args []string) error {
		if code := do(ctx, args, t.out, t.Stderr); code != ExitOK {
			return exitError{code, nil}
		}
		return nil
	}
}
