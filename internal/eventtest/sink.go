package eventtest

import v1 "k8s.io/api/core/v1"

// Event is an event that a Sink received.
type Event struct {
	Pod       *v1.Pod // nil for an event of the node
	Container string  // empty for an event of the whole pod
	Type      string
	Reason    string
	Message   string
}

// Sink is an event.Sink for tests, made from a function of the test. It notes each event for Main, and then calls
// this function. Calls may be concurrent, so the function must lock the data that it writes.
type Sink func(Event)

// Pod implements event.Sink.
func (s Sink) Pod(p *v1.Pod, container, eventType, reason, message string) {
	RecordEvent(eventType, reason, message)
	s(Event{Pod: p, Container: container, Type: eventType, Reason: reason, Message: message})
}

// Node implements event.Sink.
func (s Sink) Node(eventType, reason, message string) {
	RecordEvent(eventType, reason, message)
	s(Event{Type: eventType, Reason: reason, Message: message})
}
