package outbox

import (
	"cmp"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podspec"
)

// A record is the compact form of an event in memory. It has only the fields in which events differ. There are several events for each pod,
// and a v1.Event takes three times as much memory.
type record struct {
	key                           eventKey
	name, message                 string
	object, namespace, objectKind string // the involved object
	annotations                   map[string]string
	count                         int32
	sentCount                     int32     // the count that was last sent; 0 if never sent
	overBudget                    bool      // not sent, because the budget of its object was used up
	firstSecond, lastSecond       int64     // in seconds of Unix time, by the wall clock
	last                          time.Time // monotonic time of the last occurrence
	next                          time.Time // the event is not sent before this time
	tries                         uint8     // number of failures since the event was last sent, at most maxTries
	refused                       uint8     // number of these failures that count for giving up, at most maxTries
	givenUp                       bool      // the event was given up and has not been sent since
	acceptedBefore                uint32    // holds.accepted at the last failure that counts

	seq    int64
	stored storedValues
}

// recordOf converts an event to a record.
func recordOf(ev *v1.Event) *record {
	o := ev.InvolvedObject
	return &record{
		key:  eventKey{o.UID, o.FieldPath, ev.Type, ev.Reason, ev.Message},
		name: ev.Name, message: ev.Message, object: o.Name, namespace: o.Namespace, objectKind: o.Kind, annotations: ev.Annotations,
		count: ev.Count, firstSecond: ev.FirstTimestamp.Unix(), lastSecond: ev.LastTimestamp.Unix(),
	}
}

// toEvent converts a record to an event.
func (e *Events) toEvent(r *record) *v1.Event {
	return &v1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.eventNamespace(), Name: r.name, Annotations: maps.Clone(r.annotations)},
		InvolvedObject: v1.ObjectReference{
			APIVersion: "v1", Kind: r.objectKind, Namespace: r.namespace, Name: r.object, UID: r.key.uid, FieldPath: r.key.field,
		},
		Type: r.key.kind, Reason: r.key.reason, Message: r.message, Count: r.count,
		FirstTimestamp: metav1.Unix(r.firstSecond, 0), LastTimestamp: metav1.Unix(r.lastSecond, 0),
		Source:              v1.EventSource{Component: eventSource, Host: e.EventsConfig.Node},
		ReportingController: eventSource, ReportingInstance: e.EventsConfig.Node,
	}
}

// eventForServer is like toEvent. The event refers to the mirror pod of a static pod.
func (e *Events) eventForServer(r *record) *v1.Event {
	ev := e.toEvent(r)
	ev.InvolvedObject.Name = cmp.Or(ev.Annotations[keys.MirrorName], ev.InvolvedObject.Name)
	delete(ev.Annotations, keys.MirrorName)
	return ev
}

// withMirrorName returns the annotations of a stored event, with the name of the pod in the API server if it is another one.
func withMirrorName(annotations map[string]string, p *v1.Pod) map[string]string {
	if name := podspec.MirrorName(p); name != p.Name {
		annotations = maps.Clone(annotations)
		if annotations == nil {
			annotations = make(map[string]string, 1)
		}
		annotations[keys.MirrorName] = name
	}
	return annotations
}

// eventNamespace returns the namespace of the event: the namespace of the object, or default for a node.
func (r *record) eventNamespace() string { return cmp.Or(r.namespace, metav1.NamespaceDefault) }

type eventKey struct {
	uid                          types.UID
	field, kind, reason, message string
}
