package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/terminal"
	"github.com/islet-edge/islet/internal/api"
)

// PollInterval is the time between two requests to an agent that has stopped.
const PollInterval = 500 * time.Millisecond

// Poll calls the function poll at an interval until poll returns true or an error. It ignores errors of an unreachable agent for
// maxAway, because the agent may restart.
func Poll(ctx context.Context, every time.Duration, poll func() (done bool, err error)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	away := time.Time{}
	for {
		done, err := poll()
		switch {
		case done:
			return err
		case err == nil:
			away = time.Time{}
		case !command.IsUnreachable(err):
			return err
		case away.IsZero():
			away = time.Now()
		case time.Since(away) > maxAway:
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// maxAway is the maximum time for which the agent may be unreachable during a restart.
const maxAway = 2 * time.Minute

// Stage sends a request for a trial to the agent and shows the progress. It returns the last line of the answer.
func Stage(ctx context.Context, t *command.Tool, path string, query url.Values, bar *terminal.Progress) (last api.Progress, _ error) {
	defer bar.ClearBars()
	err := Stream(ctx, t, http.MethodPost, path, query, nil, func(p api.Progress) (bool, error) {
		switch {
		case p.Error != "":
			return true, errors.New(terminal.IndentLines(p.Error))
		case p.Ref != "" && !p.Done: // otherwise the value is a keep-alive line
			bar.UpdateItem(p.Ref, p.Status, p.Current, p.Total)
		}
		last = p
		return p.Done, nil
	})
	return last, err
}
