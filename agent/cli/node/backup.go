package node

import (
	"cmp"
	"context"

	"github.com/spf13/pflag"

	"github.com/islet-edge/islet/agent/cli/command"
)

// Backup sets up islet backup. Its flags are not parsed here, because the flags of the agent follow them.
func Backup(t *command.Tool, _ *pflag.FlagSet) command.Runner { return runBackup(t, "backup") }

// Restore sets up islet restore.
func Restore(t *command.Tool, _ *pflag.FlagSet) command.Runner { return runBackup(t, "restore") }

func runBackup(t *command.Tool, verb string) command.Runner {
	return func(ctx context.Context, args []string) error {
		if code := t.Backup(ctx, verb, args, t.Env, cmp.Or(t.Socket, t.Getenv("ISLET_SOCKET"))); code != command.ExitOK {
			return command.ExitWith(code, nil)
		}
		return nil
	}
}
