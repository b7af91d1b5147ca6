package cli

import (
	"cmp"
	"context"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// The commands in this file do not need a running agent. Package agent implements them.

func setupDoctor(t *tool, _ *pflag.FlagSet) runner {
	run := onHost(t, t.Doctor)
	return func(ctx context.Context, args []string) error {
		if socket := cmp.Or(t.socket, t.Getenv("ISLET_SOCKET")); socket != "" {
			args = append([]string{"--socket=" + socket}, args...)
		}
		return run(ctx, args)
	}
}

func setupCleanup(t *tool, _ *pflag.FlagSet) runner { return onHost(t, t.Cleanup) }

// setupAgent is only used for --help, because the agent parses its own arguments.
func setupAgent(t *tool, _ *pflag.FlagSet) runner {
	return func(context.Context, []string) error { return usage("this program has no agent") }
}

func onHost(t *tool, do func(ctx context.Context, args []string, stdout, stderr io.Writer) int) runner {
	return func(ctx context.Context, args []string) error {
		out := t.out
		if t.inColour(out) && !slices.ContainsFunc(args, func(a string) bool { return strings.Contains(a, "json") }) {
			out = &severityWriter{w: out}
		}
		if code := do(ctx, args, out, t.Stderr); code != ExitOK {
			return exitError{code, nil}
		}
		return nil
	}
}
