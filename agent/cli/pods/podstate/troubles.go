package podstate

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/printable"
)

// troublesTimeout is the maximum time for the status of the agent, after a wait has already failed.
const troublesTimeout = 10 * time.Second

// PrintTroubles prints the troubles of some pods to standard error, as islet status does: the exit code, the last line of the log and the
// command that shows more. It prints nothing if the agent does not answer, because the wait itself returns an error.
func PrintTroubles(ctx context.Context, t *command.Tool, pods []types.NamespacedName) {
	if len(pods) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, troublesTimeout)
	defer cancel()
	var st api.Status
	if client.Get(ctx, t, api.PathStatus, &st) != nil {
		return
	}
	for i := range st.Troubles {
		if tr := &st.Troubles[i]; slices.Contains(pods, types.NamespacedName{Namespace: tr.Namespace, Name: tr.Name}) {
			PrintAttention(t.Stderr, api.Attention{Text: tr.Text(), Command: tr.Command})
		}
	}
}

// PrintAttention prints one item that needs attention, and the command that shows more about it.
func PrintAttention(w io.Writer, a api.Attention) {
	fmt.Fprintf(w, "  - %s\n", printable.Line(a.Text))
	if a.Command != "" {
		fmt.Fprintf(w, "      -> %s\n", printable.Line(a.Command))
	}
}
