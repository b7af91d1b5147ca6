package node

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/spf13/pflag"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/internal/api"
)

// TakeOver sets up islet takeover, which assigns the node's name to this machine.
func TakeOver(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	force := flags.Bool("force", false, "also if the other machine is alive; it stops using the name, but its pods keep running")
	return func(ctx context.Context, _ []string) error {
		query := url.Values{}
		if *force {
			query.Set("force", "")
		}
		var done api.TakenOver
		if err := client.Call(ctx, t, http.MethodPost, api.PathTakeOver, query, nil, &done); err != nil {
			return err
		}
		if done.Had {
			fmt.Fprintln(t.Out, "this machine already has the name of the node")
			return nil
		}
		fmt.Fprintln(t.Out, "this machine now has the name of the node; any other machine stops using it")
		return nil
	}
}
