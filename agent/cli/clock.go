package cli

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/pflag"

	"github.com/islet-edge/islet/internal/api"
)

func setupClock(t *tool, flags *pflag.FlagSet) runner {
	output := flags.StringP("output", "o", "", "json or yaml")
	return func(ctx context.Context, args []string) error {
		method := http.MethodGet
		switch {
		case len(args) == 1 && args[0] == "reset":
			method = http.MethodDelete
		case len(args) > 0:
			return usage("islet clock shows the time, islet clock reset discards the recorded time limits")
		}
		var c api.Clock
		if err := t.call(ctx, method, api.PathClock, nil, nil, &c); err != nil {
			return err
		}
		if *output != "" {
			return t.printObject(*output, c)
		}
		t.printClock(&c)
		return nil
	}
}

func (t *tool) printClock(c *api.Clock) {
	out := &table{}
	row := func(name string, at time.Time, what string) {
		if !at.IsZero() {
			out.row(name, at.UTC().Format(time.RFC3339), what)
		}
	}
	row("Now:", c.Now, "certificates are judged by it")
	row("Machine:", c.Machine, "the machine's clock")
	row("Floor:", c.Floor, "has passed for certain, as the API server said")
	row("Hint:", c.Hint, "a certificate of the cluster began to be valid")
	row("Claimed:", c.Claimed, fmt.Sprintf("%d answers of the API server; not believed", c.Answers))
	out.print(t.out)
	if c.Refused != "" {
		fmt.Fprintf(t.out, "Not believed: %s\n", printable(c.Refused))
	}
	if ahead := c.Now.Sub(c.Machine); ahead > time.Minute {
		fmt.Fprintf(t.out,
			"The machine's clock is behind by %s. Set it; if it is right, islet clock reset forgets the rest.\n",
			ahead.Round(time.Second))
	}
}
