package change

import (
	"context"
	"net/http"
	"time"

	"github.com/spf13/pflag"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/terminal"
	"github.com/islet-edge/islet/internal/api"
)

// UpdateCommands returns the subcommands of islet update.
func UpdateCommands() []command.Command {
	return []command.Command{
		{Name: "status", Summary: "show which version of islet the node follows, and what it waits for", Setup: setupUpdateStatus},
	}
}

func setupUpdateStatus(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	output := flags.StringP("output", "o", "", "json or yaml")
	return func(ctx context.Context, _ []string) error {
		var s api.UpdateStatus
		if err := client.Call(ctx, t, http.MethodGet, api.PathUpdate, nil, nil, &s); err != nil {
			return err
		}
		if *output != "" {
			return terminal.PrintObject(t, *output, &s)
		}
		onTrial := ""
		if s.Report.OnTrial {
			onTrial = "a version is on trial: the node returns to the previous version if the trial fails"
		}
		rows := []string{"Version:", s.Version, "Trial:", onTrial, "Follows:", s.Archive + s.Index, "Checked:", formatTime(s.Checked),
			"Problem:", s.Problem, "Offered:", s.Offered, "Ring:", s.Ring, "State:", s.State, "Reason:", s.Reason,
			"Until:", formatTime(s.Until)}
		out := &terminal.Table{}
		for i := 0; i < len(rows); i += 2 {
			if rows[i+1] != "" {
				out.AddRow(rows[i], rows[i+1])
			}
		}
		out.Print(t.Out)
		return nil
	}
}

// formatTime returns "" for the zero time.
func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
