package allocate

import (
	"encoding/json"

	v1 "k8s.io/api/core/v1"
)

// Reasons of the events about a pod's resize: the kubelet's.
const (
	Started    = "ResizeStarted"
	Completed  = "ResizeCompleted"
	Deferred   = "ResizeDeferred"
	Infeasible = "ResizeInfeasible"
	Failed     = "ResizeError"
)

// summary is what such an event shows of a pod.
type summary struct {
	InitContainers []part `json:"initContainers,omitempty"`
	Containers     []part `json:"containers,omitempty"`
	Generation     int64  `json:"generation"`
	Error          string `json:"error,omitempty"`
}

type part struct {
	Name      string                  `json:"name"`
	Resources v1.ResourceRequirements `json:"resources"`
}

// Message is the text of an event: what happened, with a pod's resources as JSON, which
// generation of it they are of, and why it failed; problem is empty if it did not.
func Message(what string, pod *v1.Pod, generation int64, problem string) string {
	s := summary{Generation: generation, Error: problem}
	for _, c := range pod.Spec.InitContainers {
		s.InitContainers = append(s.InitContainers, part{c.Name, c.Resources})
	}
	for _, c := range pod.Spec.Containers {
		s.Containers = append(s.Containers, part{c.Name, c.Resources})
	}
	b, err := json.Marshal(s)
	if err != nil {
		return what
	}
	return what + ": " + string(b)
}
