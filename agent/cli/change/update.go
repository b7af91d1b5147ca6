package change

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/terminal"
	"github.com/islet-edge/islet/internal/api"
)

// Update sets up islet update.
func Update(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	older := flags.Bool("older", false, "allow a version that is not newer")
	despite := flags.Bool("despite-pods", false, "keep it even if pods become unready, as long as node, link and API are healthy")
	back := flags.Bool("back", false, "return to the version that the last update replaced; needs no archive")
	dry := flags.Bool("dry-run", false, "only fetch, check and test it")
	quick := flags.Bool("no-wait", false, "do not wait for the end of the trial")
	quiet := flags.BoolP("quiet", "q", false, "no progress")
	return func(ctx context.Context, args []string) error {
		from, err := updateSource(args, *back)
		if err != nil {
			return err
		}
		if !*back && !strings.Contains(from, "://") {
			abs, err := filepath.Abs(from)
			if err != nil {
				return err
			}
			from = abs
		}
		query := url.Values{"from": {from}}
		if *back {
			query.Set("back", "")
		}
		if *older {
			query.Set("older", "")
		}
		if *despite {
			query.Set("despitePods", "")
		}
		if *dry {
			query.Set("dryRun", "")
		}
		u, err := stageArchive(ctx, t, query, terminal.NewProgress(t, *quiet))
		if err != nil {
			return err
		}
		switch {
		case u.ID == "":
			fmt.Fprintf(t.Out, "version %s can be tried\n", u.Version)
			return nil
		case *quick:
			fmt.Fprintf(t.Out, "version %s will be tried: islet config show\n", u.Version)
			return nil
		}
		return WaitForUpdate(ctx, t, u)
	}
}

// updateSource returns the archive that the arguments of islet update name. With --back it returns
// "".
func updateSource(args []string, back bool) (string, error) {
	switch {
	case back && len(args) > 0:
		return "", command.Usage("islet update --back takes no archive: the replaced version is on this machine")
	case back:
		return "", nil
	case len(args) != 1 || args[0] == "":
		return "", command.Usage("islet update needs one archive, a file or an https URL; --back needs none")
	}
	return args[0], nil
}

// stageArchive requests that the agent fetches and verifies an archive. It shows the progress.
func stageArchive(ctx context.Context, t *command.Tool, query url.Values, bar *terminal.Progress) (u api.Update, _ error) {
	last, err := client.Stage(ctx, t, api.PathUpdate, query, bar)
	if last.Update != nil {
		u = *last.Update
	}
	return u, err
}

// SelfTest sets up islet self-test. Before the trial of a new program, the agent runs this command of the
// new program.
func SelfTest(t *command.Tool, _ *pflag.FlagSet) command.Runner {
	return func(context.Context, []string) error {
		return command.OnHost(t.SelfTest != nil, func() int { return t.SelfTest(t.Stdout, t.Stderr) })
	}
}

// WaitForUpdate waits for the end of a version's trial. The agent restarts at the beginning and the end
// of a trial.
func WaitForUpdate(ctx context.Context, t *command.Tool, u api.Update) error {
	return waitForTrial(ctx, t, u.ID, func(c *api.Configuration) (done bool, err error) {
		switch n := len(c.History); {
		case c.FailedUpdate != nil && c.FailedUpdate.ID == u.ID:
			return true, fmt.Errorf("version %s failed, the previous version is running: %s", u.Version,
				terminal.IndentLines(c.FailedUpdate.Why))
		case n > 0 && c.History[n-1].ID == u.ID && c.History[n-1].Why == "":
			fmt.Fprintf(t.Out, "version %s is installed and runs (%s)\n", u.Version,
				time.Duration(c.History[n-1].Seconds*float64(time.Second)).Round(time.Second))
			return true, nil
		}
		return true, fmt.Errorf("version %s is not running: another trial was started meanwhile (islet config history)", u.Version)
	})
}
