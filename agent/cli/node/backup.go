package node

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/pflag"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/internal/api"
)

// Backup sets up islet backup. Its flags are not parsed here, because the flags of the agent follow them.
func Backup(t *command.Tool, _ *pflag.FlagSet) command.Runner { return runBackup(t, "backup") }

// Restore sets up islet restore.
func Restore(t *command.Tool, _ *pflag.FlagSet) command.Runner { return runBackup(t, "restore") }

// copyTimeout is the timeout of the agent's copy of the database, before its response begins.
const copyTimeout = 10 * time.Minute

func runBackup(t *command.Tool, verb string) command.Runner {
	return func(ctx context.Context, args []string) error {
		t.Socket = cmp.Or(t.Socket, t.Getenv("ISLET_SOCKET"))
		ask := func(socket string, query url.Values) (io.ReadCloser, bool, error) {
			at := *t
			at.Socket = socket
			conn, err := client.Dial(ctx, &at)
			if err != nil {
				err = client.Unreachable(&at, err)
				return nil, !errors.Is(err, fs.ErrPermission), err
			}
			conn.Close()
			at.ResponseTimeout = cmp.Or(t.ResponseTimeout, copyTimeout)
			resp, err := client.Request(ctx, &at, http.MethodPost, api.PathBackup, query, nil)
			if err != nil { // an agent that is slow still has the state directory
				return nil, false, err
			}
			return resp.Body, false, nil
		}
		return command.OnHost(t.Backup != nil, func() int { return t.Backup(ctx, verb, args, t, ask) })
	}
}
