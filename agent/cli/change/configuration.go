package change

import (
	"bytes"
	"cmp"
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

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/objects"
	"github.com/islet-edge/islet/agent/cli/terminal"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/printable"
)

// Commands returns the subcommands of islet config.
func Commands() []command.Command {
	return []command.Command{
		{
			Name:    "show",
			Summary: "show the configuration that the node uses, and why it does not use a newer one",
			Setup:   setupConfigShow,
		},
		{Name: "apply", Args: "FILE|-", Summary: "try a configuration, and keep it if the node works as well as before",
			ArgsKind: command.TakesFiles, Setup: setupConfigApply,
			Detail: "FILE contains a KubeletConfiguration, an EdgeConfiguration or both. The pods keep running. " +
				"If the trial fails, the node returns\nto the last known good configuration by itself. Exits " +
				"with 1 if the configuration is rejected or fails."},
		{Name: "revert", Summary: "return to the previous good configuration", Setup: setupConfigRevert,
			Detail: "It is tried like any other. If there is no previous one, the node uses its own files again."},
		{Name: "history", Summary: "list the trials and their outcomes", Setup: setupConfigHistory},
	}
}

func setupConfigShow(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	output := flags.StringP("output", "o", "", "json or yaml, with the documents")
	return func(ctx context.Context, _ []string) error {
		c, err := getConfiguration(ctx, t)
		if err != nil {
			return err
		}
		if *output != "" {
			return terminal.PrintObject(t, *output, c)
		}
		printConfiguration(t, c)
		return nil
	}
}

func getConfiguration(ctx context.Context, t *command.Tool) (*api.Configuration, error) {
	var c api.Configuration
	return &c, client.Call(ctx, t, http.MethodGet, api.PathConfiguration, nil, nil, &c)
}

func printConfiguration(t *command.Tool, c *api.Configuration) {
	out := &terminal.Table{}
	row := func(name string, r api.ConfigurationRef) {
		from := r.From
		if !r.At.IsZero() {
			from += ", since " + r.At.UTC().Format(time.RFC3339)
		}
		out.AddRow(name, r.ID, from)
	}
	row("In use:", c.Active)
	row("Good:", c.Good)
	if c.Before.ID != c.Good.ID {
		row("Before:", c.Before)
	}
	if c.Assigned != nil {
		row("Assigned:", *c.Assigned)
	}
	if c.Follows != "" {
		state := c.FollowProblem
		if c.Overridden && state == "" {
			state = "used again when it changes"
		}
		out.AddRow("Follows:", c.Follows, state)
	}
	out.Print(t.Out)
	if c.Files != nil {
		fmt.Fprintf(t.Out, "Files: %s\n", FilesText(c.Files))
	}
	switch {
	case c.Trying:
		fmt.Fprintf(t.Out, "On trial: %s\n", printable.Line(cmp.Or(c.Waiting, "beginning")))
	case c.Assigned != nil:
		fmt.Fprintln(t.Out, "Its trial begins when the node is healthy")
	}
	if c.Problem != "" {
		fmt.Fprintf(t.Out, "Problem: %s\n", terminal.IndentLines(c.Problem))
	}
	if f := c.FailedUpdate; f != nil {
		fmt.Fprintf(t.Out, "Update: %s failed: %s\n", printable.Line(f.ID), terminal.IndentLines(f.Why))
	}
}

func setupConfigHistory(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	output := flags.StringP("output", "o", "", "json or yaml")
	return func(ctx context.Context, _ []string) error {
		c, err := getConfiguration(ctx, t)
		if err != nil {
			return err
		}
		if *output != "" {
			return terminal.PrintObject(t, *output, c.History)
		}
		out := &terminal.Table{}
		out.AddRow("ENDED", "CONFIGURATION", "TOOK", "OUTCOME", "FROM")
		for _, h := range c.History {
			out.AddRow(h.At.UTC().Format(time.RFC3339), h.ID,
				time.Duration(h.Seconds*float64(time.Second)).Round(time.Second/10).String(), outcomeText(&h), h.From)
		}
		out.Print(t.Out)
		return nil
	}
}

// outcomeText returns the outcome of a trial in one line.
func outcomeText(h *api.ConfigurationTrial) string {
	outcome := "failed: "
	switch {
	case h.Why == "":
		return "accepted"
	case h.Untried != "" && h.Interrupted:
		outcome = "not tried: "
	case h.Withdrawn:
		outcome = "given up: "
	case h.Interrupted:
		outcome = "interrupted: "
	}
	return outcome + strings.Join(strings.Fields(h.Why), " ")
}

// configApply implements islet config apply.
type configApply struct {
	*command.Tool
	dry, quick, despitePods bool
	consent                 []string
}

func setupConfigApply(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	c := &configApply{Tool: t}
	flags.BoolVar(&c.dry, "dry-run", false, "only check it")
	flags.BoolVar(&c.despitePods, "despite-pods", false, "keep it even if pods become unready, as long as node, link and API are healthy")
	flags.BoolVar(&c.quick, "no-wait", false, "do not wait for the end of the trial")
	flags.StringSliceVar(&c.consent, "consent", nil,
		"protected fields that it may change, such as podCIDR; see docs/configuration.md")
	return c.run
}

func (c *configApply) run(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return command.Usage("islet config apply needs one file, or - for standard input")
	}
	data, name, err := c.readDocuments(args[0])
	if err != nil {
		return err
	}
	query := url.Values{"from": {name}, "consent": {strings.Join(c.consent, ",")}}
	if c.dry {
		query.Set("dryRun", "")
	}
	if c.despitePods {
		query.Set("despitePods", "")
	}
	var ref api.ConfigurationRef
	if err := client.Call(ctx, c.Tool, http.MethodPost, api.PathConfiguration, query, bytes.NewReader(data), &ref); err != nil {
		return err
	}
	if c.dry {
		fmt.Fprintf(c.Out, "configuration %s is valid\n", ref.ID)
		return nil
	}
	if c.quick {
		fmt.Fprintf(c.Out, "configuration %s will be tried: islet config show\n", ref.ID)
		return nil
	}
	return waitForOutcome(ctx, c.Tool, ref.ID)
}

func (c *configApply) readDocuments(file string) (data []byte, name string, err error) {
	if file == "-" {
		data, err = io.ReadAll(io.LimitReader(c.Stdin, objects.MaxManifest))
		file = "standard input"
	} else {
		data, err = objects.ReadManifest(os.Open, file)
		if abs, aerr := filepath.Abs(file); aerr == nil {
			file = abs
		}
	}
	if len(data) > api.MaxConfiguration {
		err = fmt.Errorf("%s is too large: a configuration may have at most %d MiB", file, api.MaxConfiguration>>20)
	}
	return data, file, err
}

// waitForOutcome waits for the end of a configuration's trial and prints the result. The agent restarts at the beginning and
// the end of a trial.
func waitForOutcome(ctx context.Context, t *command.Tool, id string) error {
	return waitForTrial(ctx, t, id, func(c *api.Configuration) (bool, error) {
		switch {
		case c.Active.ID == id:
			fmt.Fprintf(t.Out, "configuration %s is in use\n", id)
			return true, nil
		case c.Failed != nil && c.Failed.ID == id:
			return true, fmt.Errorf("configuration %s failed, %s is in use: %s", id, c.Active.ID, terminal.IndentLines(c.Failed.Why))
		}
		return true, fmt.Errorf("configuration %s is not in use: another one was tried meanwhile (islet config history)", id)
	})
}

// waitForTrial waits until the trial of a configuration or program has ended. It then passes the state of the node's
// configuration to the function ended. It repeats this until that function returns true.
func waitForTrial(ctx context.Context, t *command.Tool, id string, ended func(*api.Configuration) (done bool, err error)) error {
	said := ""
	return client.Poll(ctx, time.Second/4, func() (done bool, err error) {
		c, err := getConfiguration(ctx, t)
		switch {
		case err != nil:
			return false, err
		case c.Trying || c.Assigned != nil && c.Assigned.ID == id:
			now := cmp.Or(c.Waiting, "on trial")
			counts := strings.HasPrefix(now, asBefore) && strings.HasPrefix(said, asBefore) // printed once, with the whole duration
			if now != said && !counts {
				said = now
				fmt.Fprintf(t.Stderr, "%s\n", printable.Line(now))
			}
			return false, nil
		}
		return ended(c)
	})
}

// asBefore is the beginning of api.Configuration.Waiting while the node stays as well as before for the duration of the trial.
const asBefore = "as well as before"

func setupConfigRevert(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	quick := flags.Bool("no-wait", false, "do not wait for the end of the trial")
	return func(ctx context.Context, _ []string) error {
		var ref api.ConfigurationRef
		if err := client.Call(ctx, t, http.MethodDelete, api.PathConfiguration, nil, nil, &ref); err != nil {
			return err
		}
		if *quick {
			fmt.Fprintf(t.Out, "configuration %s will be tried: islet config show\n", ref.ID)
			return nil
		}
		return waitForOutcome(ctx, t, ref.ID)
	}
}
