package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/printable"
)

// shutdownCommand implements islet shutdown.
type shutdownCommand struct {
	*command.Tool
	cancel, ifOff bool
}

// Shutdown sets up islet shutdown.
func Shutdown(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	c := &shutdownCommand{Tool: t}
	flags.BoolVar(&c.cancel, "cancel", false, "cancel the shutdown and start the pods again")
	flags.BoolVar(&c.ifOff, "if-off", false,
		"do nothing unless OpenRC or systemd is shutting the machine down; for the stop command of the service")
	return c.run
}

func (c *shutdownCommand) run(ctx context.Context, _ []string) error {
	if c.cancel {
		var none struct{}
		if err := client.Call(ctx, c.Tool, http.MethodDelete, api.PathShutdown, nil, nil, &none); err != nil {
			return err
		}
		fmt.Fprintln(c.Out, "the node starts pods again")
		return nil
	}
	if c.ifOff && !isShuttingDown(ctx, c.Getenv) {
		return nil
	}
	configured := true
	err := client.Stream(ctx, c.Tool, http.MethodPost, api.PathShutdown, nil, nil, func(p api.Progress) (bool, error) {
		if p.Error != "" {
			return true, errors.New(printable.Line(p.Error))
		}
		configured = configured && p.Status != "unconfigured"
		return p.Done, nil
	})
	switch {
	case err != nil:
		return err
	case configured:
		fmt.Fprintln(c.Out, "all pods have ended or exceeded their time; the next boot starts them again, or islet shutdown --cancel")
	case !c.ifOff:
		return errors.New("shutdownGracePeriod is not set, so pods do not end in order: they run until the machine is off")
	}
	return nil
}

// isShuttingDown reports whether the service manager is shutting the machine down. OpenRC sets environment variables for its
// scripts. The program systemctl returns the state of systemd.
func isShuttingDown(ctx context.Context, getenv func(string) string) bool {
	if strings.EqualFold(getenv("RC_GOINGDOWN"), "yes") || getenv("RC_RUNLEVEL") == "shutdown" {
		return true
	}
	ctx, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	state, _ := exec.CommandContext(ctx, "systemctl", "is-system-running").Output() // the exit code is an error unless the state is running
	return strings.TrimSpace(string(state)) == "stopping"
}
