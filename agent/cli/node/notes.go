package node

import (
	"fmt"
	"strings"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/printable"
)

// maxNotes is the maximum number of pods in a note, and of notes in a list.
const maxNotes = 5

// statusNotes returns information that requires no action of the user. It does not affect the exit code.
func statusNotes(st *api.Status) (out []string) {
	for _, i := range st.Ignored[:min(len(st.Ignored), maxNotes)] {
		out = append(out,
			fmt.Sprintf("pod %s/%s has fields that have no effect on this node: %s", i.Namespace, i.Name, strings.Join(i.Fields, ", ")))
	}
	if n := len(st.Ignored) - maxNotes; n > 0 {
		out = append(out, fmt.Sprintf("%s more with such fields: see islet status -o json", api.Pluralize(n, "pod")))
	}
	if n := len(st.Evictable); n > 0 {
		names := strings.Join(st.Evictable[:min(n, maxNotes)], ", ")
		if n > maxNotes {
			names += fmt.Sprintf(" and %d more", n-maxNotes)
		}
		out = append(out, fmt.Sprintf("the control plane deletes %s if this node does not answer for some "+
			"time, by default 5 minutes: to prevent that, give them "+
			"tolerations without tolerationSeconds for node.kubernetes.io/not-ready and "+
			"node.kubernetes.io/unreachable, effect NoExecute", names))
	}
	return out
}

func printNotes(t *command.Tool, st *api.Status) {
	list := statusNotes(st)
	if len(list) == 0 {
		return
	}
	fmt.Fprintln(t.Out, "\nNotes:")
	for _, n := range list {
		fmt.Fprintf(t.Out, "  - %s\n", printable.Line(n))
	}
}
