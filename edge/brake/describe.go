package brake

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// reportChange logs that a hold has begun, changed or ended. It also records an event of the Node.
func (b *Brake) reportChange(before, after *Hold, running int) {
	switch {
	case after != nil && (before == nil || before.Seen == nil || len(before.Pods) != len(after.Pods) || before.Why != after.Why):
		b.Log.Warn("pods without an API server that wants them keep running until islet accept",
			"pods", len(after.Pods), "of", running, "because", after.Why)
		b.Event(true, ReasonHeld, after.message(running))
	case after == nil && before != nil:
		b.Log.Info("no pods are on hold any more", "held", len(before.Pods), "since", before.Since)
		b.Event(false, ReasonReleased, "No pods are on hold any more")
	}
}

func (h *Hold) message(running int) string {
	if h.Why == whyLeft {
		return fmt.Sprintf("%d pods of the API server keep running although %s. "+
			"Restore --kubeconfig or k3s.directory, or end the pods by \"islet accept\" on the node", len(h.Pods), h.Why)
	}
	return fmt.Sprintf("%d of %d pods keep running although the API server does not have them: %s. \"islet accept\" on the node ends them",
		len(h.Pods), running, h.Why)
}

// Describe returns a description of a hold in one paragraph, with the names of up to five pods.
func (b *Brake) Describe(h Hold) string {
	names := map[types.UID]string{}
	for _, p := range b.Pods() {
		names[p.Pod.UID] = p.Pod.Namespace + "/" + p.Pod.Name
	}
	var some []string
	for _, uid := range h.Pods[:min(len(h.Pods), 5)] {
		some = append(some, names[uid])
	}
	slices.Sort(some)
	if more := len(h.Pods) - len(some); more > 0 {
		some = append(some, fmt.Sprintf("%d more", more))
	}
	until := "until islet accept"
	if at := b.HoldDeadline(); !at.IsZero() {
		until += " or " + at.UTC().Format(time.RFC3339)
	}
	if b.Left != nil {
		return fmt.Sprintf("%s, and %d pods of the API server run here (%s). They keep running %s. "+
			"To keep them longer, restore --kubeconfig or k3s.directory and restart the agent",
			h.Why, len(h.Pods), strings.Join(some, ", "), until)
	}
	return fmt.Sprintf("the API server does not have %d pods that run here (%s): %s. They keep running %s",
		len(h.Pods), strings.Join(some, ", "), h.Why, until)
}
