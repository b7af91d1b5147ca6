package cli

import (
	"fmt"
	"strings"

	"github.com/islet-edge/islet/internal/api"
)

// mostNotes bounds the pods in a note or list of notes.
const mostNotes = 5

// notes returns information that needs no action. It does not affect the exit code.
func notes(st *api.Status) (out []string) {
	for _, i := range st.Ignored[:min(len(st.Ignored), mostNotes)] {
		out = append(out,
			fmt.Sprintf("pod %s/%s has fields that do not act on this node: %s", i.Namespace, i.Name, strings.Join(i.Fields, ", ")))
	}
	if n := len(st.Ignored) - mostNotes; n > 0 {
		out = append(out, fmt.Sprintf("%s more with such fields: see islet status -o json", plural(n, "pod")))
	}
	if n := len(st.Evictable); n > 0 {
		names := strings.Join(st.Evictable[:min(n, mostNotes)], ", ")
		if n > mostNotes {
			names += fmt.Sprintf(" and %d more", n-mostNotes)
		}
		out = append(out, fmt.Sprintf("the control plane deletes %s when this node does not answer for some "+
			"time, by default 5 minutes: to stay they need "+
			"tolerations without tolerationSeconds for node.kubernetes.io/not-ready and "+
			"node.kubernetes.io/unreachable, effect NoExecute", names))
	}
	return out
}

func (t *tool) printNotes(st *api.Status) {
	list := notes(st)
	if len(list) == 0 {
		return
	}
	fmt.Fprintln(t.out, "\nWorth knowing:")
	for _, n := range list {
		fmt.Fprintf(t.out, "  - %s\n", printable(n))
	}
}
