package bundle

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/islet-edge/islet/agent/cli/change"
	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/terminal"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/printable"
)

// setupApply sets up islet bundle apply.
func setupApply(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	older := flags.Bool("older", false, "allow a number that is lower than before")
	wait := flags.Bool("wait", false, "wait for the end of the trial")
	quiet := flags.BoolP("quiet", "q", false, "no progress")
	return func(ctx context.Context, args []string) error {
		if len(args) != 1 || args[0] == "" {
			return command.Usage("bundle apply needs one bundle: islet bundle apply FILE|DIRECTORY|URL|oci://REFERENCE")
		}
		from := args[0]
		if !strings.Contains(from, "://") { // otherwise the agent fetches it
			var err error
			if from, err = filepath.Abs(from); err != nil {
				return err
			}
			if _, err := os.Stat(from); err != nil {
				return missingFile(args[0], err)
			}
		}
		query := url.Values{"from": {from}}
		if *older {
			query.Set("older", "")
		}
		b, err := stageBundle(ctx, t, query, terminal.NewProgress(t, *quiet))
		if err == nil && b.Update != nil {
			fmt.Fprintf(t.Out, "%s has version %s of islet, which is tried first\n", bundleName(b), printable.Line(b.Update.Version))
			if err := change.WaitForUpdate(ctx, t, *b.Update); err != nil {
				return err
			}
			b, err = stageBundle(ctx, t, query, terminal.NewProgress(t, *quiet))
		}
		switch {
		case err != nil:
			return err
		case b.Update != nil:
			return fmt.Errorf("version %s of islet is tried again (islet config show): apply %s afterwards",
				printable.Line(b.Update.Version), bundleName(b))
		case b.InUse:
			fmt.Fprintf(t.Out, "%s is in use already\n", bundleName(b))
			return nil
		case !*wait:
			fmt.Fprintf(t.Out, "%s is on trial: islet bundle status\n", bundleName(b))
			return nil
		}
		return waitForBundle(ctx, t, b)
	}
}

// bundleName returns the name and number of a bundle.
func bundleName(b api.Bundle) string {
	return fmt.Sprintf("%s number %d", printable.Line(b.Name), b.Number)
}

// stageBundle requests that the agent verifies and unpacks a bundle and starts its trial. It shows the progress.
func stageBundle(ctx context.Context, t *command.Tool, query url.Values, bar *terminal.Progress) (b api.Bundle, _ error) {
	last, err := client.Stage(ctx, t, api.PathBundle, query, bar)
	if last.Bundle != nil {
		b = *last.Bundle
	}
	return b, err
}

// waitForBundle waits for the end of a bundle's trial. The agent may restart meanwhile.
func waitForBundle(ctx context.Context, t *command.Tool, b api.Bundle) error {
	return client.Poll(ctx, time.Second/2, func() (done bool, err error) {
		s, err := getBundles(ctx, t)
		switch {
		case err != nil:
			return false, err
		case s.Trial != nil && s.Trial.Digest == b.Digest, s.Returning:
			return false, nil
		case s.Last != nil && s.Last.Digest == b.Digest && s.Last.Why == "":
			fmt.Fprintf(t.Out, "%s is in use\n", bundleName(b))
			return true, nil
		case s.Last != nil && s.Last.Digest == b.Digest:
			before := "no bundle is in use"
			if s.Current != nil {
				before = bundleName(*s.Current) + " is in use"
			}
			return true, fmt.Errorf("%s was not kept, %s: %s", bundleName(b), before, terminal.IndentLines(s.Last.Why))
		}
		return true, fmt.Errorf("%s is not on trial: another bundle was applied meanwhile (islet bundle status)", bundleName(b))
	})
}

func getBundles(ctx context.Context, t *command.Tool) (*api.Bundles, error) {
	var s api.Bundles
	if err := client.Call(ctx, t, http.MethodGet, api.PathBundle, nil, nil, &s); err != nil {
		return nil, err
	}
	return &s, nil
}

// setupStatus sets up islet bundle status.
func setupStatus(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	output := flags.StringP("output", "o", "", "json or yaml")
	return func(ctx context.Context, args []string) error {
		if len(args) > 0 {
			return command.Usage("bundle status takes no arguments")
		}
		if *output != "" {
			var s bundle.SignedState
			if err := client.Call(ctx, t, http.MethodGet, api.PathBundleState, nil, nil, &s); err != nil {
				return err
			}
			return terminal.PrintObject(t, *output, s)
		}
		s, err := getBundles(ctx, t)
		if err != nil {
			return err
		}
		printBundles(t.Out, s)
		return nil
	}
}

// printMedium prints the last stick.
func printMedium(w io.Writer, m *api.BundleMedium) {
	if m == nil {
		return
	}
	what := printable.Line(m.Device)
	if m.Bundle != nil {
		what += ", " + printable.Line(m.File) + ", " + bundleName(*m.Bundle)
	}
	fmt.Fprintf(w, "%-10s %s: %s at %s\n", "stick", what, printable.Line(m.Result), m.Time.Format(time.RFC3339))
	if m.Why != "" {
		fmt.Fprintf(w, "%-10s %s\n", "", terminal.IndentLines(printable.Line(m.Why)))
	}
}

// printBundleConfiguration prints the configuration of the bundle in the line before.
func printBundleConfiguration(w io.Writer, c *api.BundleConfiguration) {
	if c == nil {
		return
	}
	state := "in use"
	if !c.InUse {
		state = "NOT in use: another one was sent since (islet config show)"
	}
	fmt.Fprintf(w, "%-10s configuration %s, %s\n", "", printable.Line(c.ID), state)
}

// printReport prints whether the state was sent.
func printReport(w io.Writer, r *api.BundleReport) {
	if r == nil {
		return
	}
	sent := "nothing was sent since the agent started"
	if !r.Sent.IsZero() {
		sent = "sent at " + r.Sent.Local().Format(time.RFC3339)
	}
	fmt.Fprintf(w, "%-10s %s, %s\n", "reports to", printable.Line(r.URL), sent)
	if r.Problem != "" {
		fmt.Fprintf(w, "%-10s %s\n", "", terminal.IndentLines(printable.Line(r.Problem)))
	}
}

// printBundles prints the state of the bundles of a node.
func printBundles(w io.Writer, s *api.Bundles) {
	line := func(what string, b *api.Bundle) {
		if b != nil {
			fmt.Fprintf(w, "%-10s %s, %s\n", what, bundleName(*b), printable.Line(b.Digest))
		}
	}
	if s.Current == nil && s.Trial == nil {
		fmt.Fprintln(w, "no bundle is in use")
	}
	line("in use", s.Current)
	if s.Returning {
		fmt.Fprintf(w, "%-10s the agent returns to the configuration before the bundle\n", "")
	}
	ofTrial := s.Trial != nil && !s.Configuring // the configuration belongs to the bundle on trial
	if !ofTrial && !s.Returning {
		printBundleConfiguration(w, s.Configuration)
	}
	line("on trial", s.Trial)
	if ofTrial {
		printBundleConfiguration(w, s.Configuration)
	} else if s.Configuring {
		fmt.Fprintf(w, "%-10s its configuration is tried first (islet config show)\n", "")
	}
	for _, p := range s.Must {
		fmt.Fprintf(w, "%-10s %s must be Ready\n", "", printable.Line(p))
	}
	line("before", s.Previous)
	if s.Staging != "" {
		fmt.Fprintf(w, "%-10s %s\n", "next", printable.Line(s.Staging))
	}
	if f := s.Source; f != nil {
		fmt.Fprintf(w, "%-10s %s, next check at %s\n", "follows", printable.Line(f.Source), f.Next.Local().Format(time.RFC3339))
		if f.Problem != "" {
			fmt.Fprintf(w, "%-10s %s\n", "", terminal.IndentLines(printable.Line(f.Problem)))
		}
	}
	printReport(w, s.Report)
	if l := s.Last; l != nil {
		fmt.Fprintf(w, "%-10s %s: %s at %s\n", "last", bundleName(l.Bundle), l.Result, l.Time.Format(time.RFC3339))
		if l.Why != "" {
			fmt.Fprintf(w, "%-10s %s\n", "", terminal.IndentLines(printable.Line(l.Why)))
		}
	}
	printMedium(w, s.Medium)
}

// setupRevert sets up islet bundle revert.
func setupRevert(t *command.Tool, _ *pflag.FlagSet) command.Runner {
	return func(ctx context.Context, args []string) error {
		if len(args) > 0 {
			return command.Usage("bundle revert takes no arguments")
		}
		var s api.Bundles
		if err := client.Call(ctx, t, http.MethodPost, api.PathBundleRevert, nil, nil, &s); err != nil {
			return err
		}
		if s.Current == nil {
			fmt.Fprintln(t.Out, "no bundle is in use")
		} else {
			fmt.Fprintf(t.Out, "%s is in use\n", bundleName(*s.Current))
		}
		if s.Returning {
			fmt.Fprintln(t.Out, "The agent restarts with the configuration before the bundle")
		}
		return nil
	}
}
