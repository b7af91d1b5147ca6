package cli

import (
	"fmt"
	"time"

	"github.com/islet-edge/islet/internal/api"
)

func (p page) writeEvents(list []api.Event, now time.Time) {
	t := table{indent: "  "}
	t.addRow("Type", "Reason", "Age", "Container", "Message")
	for _, e := range list {
		old := api.FormatAge(e.Last, now)
		if e.Count > 1 {
			old += fmt.Sprintf(" (x%d over %s)", e.Count, api.FormatAge(e.First, now))
		}
		t.addColored(map[int]colour{0: p.colourIfOn(eventColour(e.Type))}, e.Type, e.Reason, old, e.Container, e.Message)
	}
	t.print(p.w)
}

// eventColour returns the colour of an event's type or a container's state.
func eventColour(word string) colour {
	if word == "Warning" {
		return yellow
	}
	return plain
}
