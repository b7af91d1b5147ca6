package cli

import (
	"fmt"
	"time"

	"github.com/islet-edge/islet/internal/api"
)

// writeDetails writes the information about a pod that the pod's API object does not contain.
func (p page) writeDetails(d *api.Details, now time.Time) {
	if len(d.Problems) > 0 {
		fmt.Fprintln(p.w, "Problems:")
		for _, text := range d.Problems {
			fmt.Fprintf(p.w, "  %s\n", makePrintable(text))
		}
	}
	if len(d.Hooks) > 0 {
		fmt.Fprintln(p.w, "Failed Hooks:")
		for _, h := range d.Hooks {
			fmt.Fprintf(p.w, "  postStart of %s, %s ago: %s\n", makePrintable(h.Container), age(h.At, now), makePrintable(h.Message))
		}
	}
	if len(d.Events) == 0 {
		p.writeLine(0, podColumn, "Events", "<none>")
		return
	}
	fmt.Fprintln(p.w, "Events:")
	p.writeEvents(d.Events, now)
}

func (p page) writeEvents(list []api.Event, now time.Time) {
	t := table{indent: "  "}
	t.addRow("Type", "Reason", "Age", "Container", "Message")
	for _, e := range list {
		old := age(e.Last, now)
		if e.Count > 1 {
			old += fmt.Sprintf(" (x%d over %s)", e.Count, age(e.First, now))
		}
		t.addColored(map[int]colour{0: p.colourIfOn(eventColour(e.Type))}, e.Type, e.Reason, old, e.Container, e.Message)
	}
	t.print(p.w)
}
