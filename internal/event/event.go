package event

import v1 "k8s.io/api/core/v1"

// Sink records events, with the reasons and messages of a kubelet. Its methods do not block and are
// safe for concurrent use. The type of an event is v1.EventTypeNormal or v1.EventTypeWarning.
type Sink interface {
	// Pod records an event of a pod or, if container is not empty, of one of its containers.
	Pod(pod *v1.Pod, container, eventType, reason, message string)
	// Node records an event of the node.
	Node(eventType, reason, message string)
}

// Discard is a Sink that records nothing.
type Discard struct{}

// Pod implements Sink.
func (Discard) Pod(*v1.Pod, string, string, string, string) {}

// Node implements Sink.
func (Discard) Node(string, string, string) {}
