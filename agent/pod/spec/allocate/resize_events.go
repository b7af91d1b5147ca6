package allocate

import (
	"encoding/json"

	v1 "k8s.io/api/core/v1"
)

// Reasons of the events about resizes, as in a kubelet.
const (
	Started    = "ResizeStarted"
	Completed  = "ResizeCompleted"
	Deferred   = "ResizeDeferred"
	Infeasible = "ResizeInfeasible"
	Failed     = "ResizeError"
)

// summary contains the data of a pod in the message of an event.
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

// Message returns the message of an event. It says what happened and contains, as JSON, the pod's resources, their
// generation and the problem. If the resize has not failed, the problem is empty.
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
