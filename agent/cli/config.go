package cli

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

	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/printable"
)

// configCommands returns the subcommands of islet config.
func configCommands() []command {
	return []command{
		{
			name:    "show",
			summary: "show the configuration that the node uses, and why it does not use a newer one",
			setup:   setupConfigShow,
		},
		{name: "apply", args: "FILE|-", summary: "try a configuration, and keep it if the node works as well as before",
			argsKind: takesFiles, setup: setupConfigApply,
			detail: "FILE contains a KubeletConfiguration, an EdgeConfiguration or both. The pods keep running. " +
				"If the trial fails, the node returns\nto the last known good configuration by itself. Exits " +
				"with 1 if the configuration is rejected or fails."},
		{name: "revert", summary: "return to the previous good configuration", setup: setupConfigRevert,
			detail: "It is tried like any other. If there is no previous one, the node uses its own files again."},
		{name: "history", summary: "list the trials and their outcomes", setup: setupConfigHistory},
	}
}

func setupConfigShow(t *tool, flags *pflag.FlagSet) runner {
	output := flags.StringP("output", "o", "", "json or yaml, with the documents")
	return func(ctx context.Context, _ []string) error {
		c, err := t.getConfiguration(ctx)
		if err != nil {
			return err
		}
		if *output != "" {
			return t.printObject(*output, c)
		}
		t.printConfiguration(c)
		return nil
	}
}

func (t *tool) getConfiguration(ctx context.Context) (*api.Configuration, error) {
	var c api.Configuration
	return &c, t.call(ctx, http.MethodGet, api.PathConfiguration, nil, nil, &c)
}

func (t *tool) printConfiguration(c *api.Configuration) {
	out := &table{}
	row := func(name string, r api.ConfigurationRef) {
		from := r.From
		if !r.At.IsZero() {
			from += ", since " + r.At.UTC().Format(time.RFC3339)
		}
		out.addRow(name, r.ID, from)
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
		out.addRow("Follows:", c.Follows, state)
	}
	out.print(t.out)
	if c.Files != nil {
		fmt.Fprintf(t.out, "Files: %s\n", filesText(c.Files))
	}
	switch {
	case c.Trying:
		fmt.Fprintf(t.out, "On trial: %s\n", printable.Line(cmp.Or(c.Waiting, "beginning")))
	case c.Assigned != nil:
		fmt.Fprintln(t.out, "Its trial begins when the node is healthy")
	}
	if c.Problem != "" {
		fmt.Fprintf(t.out, "Problem: %s\n", indentLines(c.Problem))
	}
	if f := c.FailedUpdate; f != nil {
		fmt.Fprintf(t.out, "Update: %s failed: %s\n", printable.Line(f.ID), indentLines(f.Why))
	}
}

func setupConfigHistory(t *tool, flags *pflag.FlagSet) runner {
	output := flags.StringP("output", "o", "", "json or yaml")
	return func(ctx context.Context, _ []string) error {
		c, err := t.getConfiguration(ctx)
		if err != nil {
			return err
		}
		if *output != "" {
			return t.printObject(*output, c.History)
		}
		out := &table{}
		out.addRow("ENDED", "CONFIGURATION", "TOOK", "OUTCOME", "FROM")
		for _, h := range c.History {
			outcome := "accepted"
			if h.Why != "" {
				outcome = "failed: "
				if h.Interrupted {
					outcome = "interrupted: "
				}
				outcome += strings.Join(strings.Fields(h.Why), " ")
			}
			out.addRow(h.At.UTC().Format(time.RFC3339), h.ID,
				time.Duration(h.Seconds*float64(time.Second)).Round(time.Second/10).String(), outcome, h.From)
		}
		out.print(t.out)
		return nil
	}
}

// configApply implements islet config apply.
type configApply struct {
	*tool
	dry, quick, despitePods bool
	consent                 []string
}

func setupConfigApply(t *tool, flags *pflag.FlagSet) runner {
	c := &configApply{tool: t}
	flags.BoolVar(&c.dry, "dry-run", false, "only check it")
	flags.BoolVar(&c.despitePods, "despite-pods", false, "keep it even if pods become unready, as long as node, link and API are healthy")
	flags.BoolVar(&c.quick, "no-wait", false, "do not wait for the end of the trial")
	flags.StringSliceVar(&c.consent, "consent", nil,
		"protected fields that it may change, such as podCIDR; see docs/configuration.md")
	return c.run
}

func (c *configApply) run(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return usage("islet config apply needs one file, or - for standard input")
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
	if err := c.call(ctx, http.MethodPost, api.PathConfiguration, query, bytes.NewReader(data), &ref); err != nil {
		return err
	}
	if c.dry {
		fmt.Fprintf(c.out, "configuration %s is valid\n", ref.ID)
		return nil
	}
	if c.quick {
		fmt.Fprintf(c.out, "configuration %s will be tried: islet config show\n", ref.ID)
		return nil
	}
	return c.waitForOutcome(ctx, ref.ID)
}

func (c *configApply) readDocuments(file string) (data []byte, name string, err error) {
	if file == "-" {
		data, err = io.ReadAll(io.LimitReader(c.Stdin, maxManifest))
		file = "standard input"
	} else {
		data, err = readManifest(os.Open, file)
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
func (t *tool) waitForOutcome(ctx context.Context, id string) error {
	return t.waitForTrial(ctx, id, func(c *api.Configuration) (bool, error) {
		switch {
		case c.Active.ID == id:
			fmt.Fprintf(t.out, "configuration %s is in use\n", id)
			return true, nil
		case c.Failed != nil && c.Failed.ID == id:
			return true, fmt.Errorf("configuration %s failed, %s is in use: %s", id, c.Active.ID, indentLines(c.Failed.Why))
		}
		return true, fmt.Errorf("configuration %s is not in use: another one was tried meanwhile (islet config history)", id)
	})
}

// waitForTrial waits until the trial of a configuration or program has ended. It then passes the state of the node's
// configuration to the function ended. It repeats this until that function returns true.
func (t *tool) waitForTrial(ctx context.Context, id string, ended func(*api.Configuration) (done bool, err error)) error {
	said := ""
	return pollAgent(ctx, time.Second/4, func() (done bool, err error) {
		c, err := t.getConfiguration(ctx)
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

func setupConfigRevert(t *tool, flags *pflag.FlagSet) runner {
	quick := flags.Bool("no-wait", false, "do not wait for the end of the trial")
	return func(ctx context.Context, _ []string) error {
		var ref api.ConfigurationRef
		if err := t.call(ctx, http.MethodDelete, api.PathConfiguration, nil, nil, &ref); err != nil {
			return err
		}
		if *quick {
			fmt.Fprintf(t.out, "configuration %s will be tried: islet config show\n", ref.ID)
			return nil
		}
		return t.waitForOutcome(ctx, ref.ID)
	}
}
