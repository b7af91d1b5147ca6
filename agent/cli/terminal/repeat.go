package terminal

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/islet-edge/islet/agent/cli/command"
)

// RepeatFlags are the flags of commands that can print their output repeatedly.
type RepeatFlags struct {
	Watch    bool
	interval time.Duration
}

// DeclareRepeat adds the flags to a command's flags.
func (a *RepeatFlags) DeclareRepeat(flags *pflag.FlagSet) {
	flags.BoolVarP(&a.Watch, "watch", "w", false, "repeat the output until interrupted")
	flags.DurationVar(&a.interval, "interval", 2*time.Second, "time between two outputs of -w")
}

// Repeat calls the function show once. With -w, it repeats the call until ctx ends, and clears a terminal before
// each call. If a call returns an error, Repeat returns the error. There is one exception: if the agent becomes
// unreachable after the first call, Repeat prints the error and continues.
func Repeat(ctx context.Context, t *command.Tool, a RepeatFlags, show func(ctx context.Context) error) error {
	if !a.Watch {
		return show(ctx)
	}
	if a.interval <= 0 {
		return command.Usage("interval %s: must be positive", a.interval)
	}
	for first := true; ; first = false {
		switch clear := IsTerminal(t.Out); {
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
