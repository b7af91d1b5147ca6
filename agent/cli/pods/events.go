package pods

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/pods/podstate"
	"github.com/islet-edge/islet/agent/cli/terminal"
	"github.com/islet-edge/islet/internal/api"
)

// eventsCommand implements islet events.
type eventsCommand struct {
	*command.Tool
	client.PodFlag
	watch, warnings, noHeaders bool
	output                     string
	table                      terminal.Table
}

// Events sets up islet events.
func Events(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	c := &eventsCommand{Tool: t}
	flags.StringVarP(&c.Namespace, "namespace", "n", "", "events of pods in this namespace (default: all events, also of the node)")
	flags.BoolVarP(&c.watch, "watch", "w", false, "then print each new event")
	flags.BoolVar(&c.warnings, "warnings", false, "only warnings")
	flags.BoolVar(&c.noHeaders, "no-headers", false, "print no header")
	flags.StringVarP(&c.output, "output", "o", "", "json or yaml")
	return c.run
}

func (c *eventsCommand) run(ctx context.Context, args []string) error {
	if len(args) > 1 {
		return command.Usage("events takes one pod at most")
	}
	var of *v1.Pod
	if len(args) == 1 {
		pod, err := client.FindPod(ctx, c.Tool, c.PodFlag, args[0])
		if err != nil {
			return err
		}
		of = pod
	}
	if c.watch {
		return c.followEvents(ctx, of)
	}
	var all []api.Event
	if err := client.Get(ctx, c.Tool, api.PathEvents, &all); err != nil {
		return err
	}
	shown := []api.Event{}
	for _, e := range all {
		if c.isWanted(e, of) {
			shown = append(shown, e)
		}
	}
	if c.output != "" {
		return terminal.PrintObject(c.Tool, c.output, shown)
	}
	if len(shown) == 0 {
		fmt.Fprintln(c.Stderr, "No events.")
		return nil
	}
	c.printHeader()
	for _, e := range shown {
		c.printEvent(e)
	}
	c.table.Print(c.Out)
	return nil
}

func (c *eventsCommand) isWanted(e api.Event, of *v1.Pod) bool {
	switch {
	case e.Type == api.EventAlive, c.warnings && e.Type != v1.EventTypeWarning:
		return false
	case of != nil:
		return e.Namespace == of.Namespace && e.Pod == of.Name
	}
	return c.Namespace == "" || e.Namespace == c.Namespace
}

func (c *eventsCommand) printHeader() {
	if !c.noHeaders {
		c.table.AddRow("LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE")
	}
}

func (c *eventsCommand) printEvent(e api.Event) {
	now := c.Now()
	old := api.FormatAge(e.Last, now)
	if e.Count > 1 {
		old += fmt.Sprintf(" (x%d over %s)", e.Count, api.FormatAge(e.First, now))
	}
	object := "node"
	if e.Pod != "" {
		object = "pod/" + e.Pod
		if e.Namespace != v1.NamespaceDefault {
			object = e.Namespace + "/" + object
		}
		if e.Container != "" {
			object += " " + e.Container
		}
	}
	c.table.AddColored(map[int]terminal.Colour{1: terminal.ColourIfOn(c.Tool, podstate.EventColour(e.Type))}, old, e.Type, e.Reason, object,
		e.Message)
}

// followEvents prints the existing events and then each new one.
func (c *eventsCommand) followEvents(ctx context.Context, of *v1.Pod) error {
	if c.output != "" && c.output != "json" {
		return command.Usage("output %q: with -w it must be json", c.output)
	}
	if c.output == "" {
		c.printHeader()
	}
	return client.Stream(ctx, c.Tool, http.MethodGet, api.PathEvents, url.Values{"watch": {"1"}}, nil, func(e api.Event) (bool, error) {
		switch {
		case !c.isWanted(e, of):
		case c.output != "":
			return false, terminal.PrintObject(c.Tool, c.output, e)
		default:
			c.printEvent(e)
			c.table.Print(c.Out)
		}
		return false, nil
	})
}
