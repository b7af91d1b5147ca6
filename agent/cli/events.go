package cli

import (
	"fmt"
	"time"

	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/printable"
)

// writeDetails writes the information about a pod that the pod's API object does not contain.
func (p page) writeDetails(d *api.Details, now time.Time) {
	if len(d.Problems) > 0 {
		fmt.Fprintln(p.w, "Problems:")
		for _, text := range d.Problems {
			fmt.Fprintf(p.w, "  %s\n", printable.Line(text))
		}
	}
	if len(d.Hooks) > 0 {
		fmt.Fprintln(p.w, "Failed Hooks:")
		for _, h := range d.Hooks {
			fmt.Fprintf(p.w, "  postStart of %s, %s ago: %s\n", printable.Line(h.Container), api.FormatAge(h.At, now),
				printable.Line(h.Message))
		}
	}
	if len(d.Events) == 0 {
		p.writeLine(0, podColumn, "Events", "<none>")
		return
	}
	fmt.Fprintln(p.w, "Events:")
	p.writeEvents(d.Events, now)
}
