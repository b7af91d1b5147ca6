package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/islet-edge/islet/agent/cli/command"
)

// againFlags are the flags of commands that can print their output repeatedly.
type againFlags struct {
	watch    bool
	interval time.Duration
}

func (a *againFlags) declareAgain(flags *pflag.FlagSet) {
	flags.BoolVarP(&a.watch, "watch", "w", false, "repeat the output until interrupted")
	flags.DurationVar(&a.interval, "interval", 2*time.Second, "time between two outputs of -w")
}

// runRepeatedly calls the function show once. With -w, it repeats the call until ctx ends, and clears a terminal before
// each call. If a call returns an error, runRepeatedly returns the error. There is one exception: if the agent becomes
// unreachable after the first call, runRepeatedly prints the error and continues.
func runRepeatedly(ctx context.Context, t *command.Tool, a againFlags, show func(ctx context.Context) error) error {
	if !a.watch {
		return show(ctx)
	}
	if a.interval <= 0 {
		return command.Usage("interval %s: must be positive", a.interval)
	}
	for first := true; ; first = false {
		switch clear := isTerminal(t.Out); {
		case clear:
			fmt.Fprint(t.Out, "\x1b[H\x1b[2J")
		case !first:
			fmt.Fprintln(t.Out)
		}
		if err := show(ctx); err != nil && ctx.Err() == nil {
			if first || !command.IsUnreachable(err) {
				return err
			}
			command.PrintError(t.Stderr, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(a.interval):
		}
	}
}
