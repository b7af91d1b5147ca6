package podstate

import (
	"fmt"
	"time"

	"github.com/islet-edge/islet/agent/cli/terminal"
	"github.com/islet-edge/islet/internal/api"
)

// WriteEvents writes a table of events.
func WriteEvents(p terminal.Page, list []api.Event, now time.Time) {
	t := terminal.Table{Indent: "  "}
	t.AddRow("Type", "Reason", "Age", "Container", "Message")
	for _, e := range list {
		old := api.FormatAge(e.Last, now)
		if e.Count > 1 {
			old += fmt.Sprintf(" (x%d over %s)", e.Count, api.FormatAge(e.First, now))
		}
		t.AddColored(map[int]terminal.Colour{0: p.ColourIfOn(EventColour(e.Type))}, e.Type, e.Reason, old, e.Container, e.Message)
	}
	t.Print(p.Out)
}

// EventColour returns the colour of an event's type or a container's state.
func EventColour(word string) terminal.Colour {
	if word == "Warning" {
		return terminal.Yellow
	}
	return terminal.Plain
}
