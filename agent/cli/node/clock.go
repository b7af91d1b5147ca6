package node

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/pflag"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/terminal"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/printable"
)

// Clock sets up islet clock.
func Clock(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	output := flags.StringP("output", "o", "", "json or yaml")
	return func(ctx context.Context, args []string) error {
		method := http.MethodGet
		switch {
		case len(args) == 1 && args[0] == "reset":
			method = http.MethodDelete
		case len(args) > 0:
			return command.Usage("islet clock shows the time, islet clock reset discards the recorded times")
		}
		var c api.Clock
		if err := client.Call(ctx, t, method, api.PathClock, nil, nil, &c); err != nil {
			return err
		}
		if *output != "" {
			return terminal.PrintObject(t, *output, c)
		}
		printClock(t, &c)
		return nil
	}
}

func printClock(t *command.Tool, c *api.Clock) {
	out := &terminal.Table{}
	row := func(name string, at time.Time, what string) {
		if !at.IsZero() {
			out.AddRow(name, at.UTC().Format(time.RFC3339), what)
		}
	}
	row("Now:", c.Now, "the time by which certificates are verified")
	row("Machine:", c.Machine, "the machine's clock")
	row("Floor:", c.Floor, "a time of the API server that has certainly passed")
	row("Hint:", c.Hint, "a certificate of the cluster became valid")
	row("Signed:", c.Signed, "the time at which a bundle was signed")
	row("Claimed:", c.Claimed, fmt.Sprintf("%d responses of the API server; not trusted", c.Answers))
	out.Print(t.Out)
	if c.Refused != "" {
		fmt.Fprintf(t.Out, "Not trusted: %s\n", printable.Line(c.Refused))
	}
	if ahead := c.Now.Sub(c.Machine); ahead > time.Minute {
		fmt.Fprintf(t.Out,
			"The machine's clock is behind by %s. Set it. If it is right, run islet clock reset, which discards the other times.\n",
			ahead.Round(time.Second))
	}
}
