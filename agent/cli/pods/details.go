package pods

import (
	"fmt"
	"time"

	"github.com/islet-edge/islet/agent/cli/pods/podstate"
	"github.com/islet-edge/islet/agent/cli/terminal"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/printable"
)

// writeDetails writes the information about a pod that the pod's API object does not contain.
func writeDetails(p terminal.Page, d *api.Details, now time.Time) {
	if len(d.Problems) > 0 {
		fmt.Fprintln(p.Out, "Problems:")
		for _, text := range d.Problems {
			fmt.Fprintf(p.Out, "  %s\n", printable.Line(text))
		}
	}
	if len(d.Hooks) > 0 {
		fmt.Fprintln(p.Out, "Failed Hooks:")
		for _, h := range d.Hooks {
			fmt.Fprintf(p.Out, "  postStart of %s, %s ago: %s\n", printable.Line(h.Container), api.FormatAge(h.At, now),
				printable.Line(h.Message))
		}
	}
	if len(d.Events) == 0 {
		p.WriteLine(0, terminal.PageColumn, "Events", "<none>")
		return
	}
	fmt.Fprintln(p.Out, "Events:")
	podstate.WriteEvents(p, d.Events, now)
}
