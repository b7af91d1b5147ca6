package node

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/pflag"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/internal/api"
)

// Accept sets up the command islet accept. The command ends pods that still run although the
// control plane has lost them, or although the configuration has no cluster any more.
func Accept(t *command.Tool, _ *pflag.FlagSet) command.Runner {
	return func(ctx context.Context, _ []string) error {
		var done api.Accepted
		if err := client.Call(ctx, t, http.MethodPost, api.PathAccept, nil, nil, &done); err != nil {
			return err
		}
		if done.Ended == 0 {
			fmt.Fprintln(t.Out, "no pods are held")
			return nil
		}
		fmt.Fprintf(t.Out, "%d held pods are ending\n", done.Ended)
		return nil
	}
}
