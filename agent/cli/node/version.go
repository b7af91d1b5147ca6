package node

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/printable"
)

// Version sets up islet version.
func Version(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	own := flags.Bool("client", false, "print only the version of this program")
	return func(ctx context.Context, _ []string) error {
		fmt.Fprintf(t.Out, "islet %s\n", t.Version)
		if *own {
			return nil
		}
		var st api.Status
		if err := client.Get(ctx, t, api.PathStatus, &st); err != nil {
			fmt.Fprintf(t.Stderr, "agent: %s\n", command.ErrorText(err))
			return nil
		}
		fmt.Fprintf(t.Out, "agent %s\n", printable.Line(st.Version))
		return nil
	}
}
