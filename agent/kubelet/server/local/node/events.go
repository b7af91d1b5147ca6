package node

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/islet-edge/islet/agent/kubelet/server/response"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/sorting"
)

// eventsInterval is the interval at which a watch polls the events.
const eventsInterval = time.Second

// sortedEvents returns the events of the node and its pods. The oldest one is the first.
func (n *Node) sortedEvents() []api.Event {
	if n.Events == nil {
		return []api.Event{}
	}
	list := slices.Clone(n.Events())
	sorting.StableBy(list, byAge)
	return list
}

// listEvents responds with the stored events. With ?watch, the response has one event per line, and each new or repeated
// event is appended until the client disconnects.
func (n *Node) listEvents(w http.ResponseWriter, r *http.Request) {
	if !r.URL.Query().Has("watch") {
		response.WriteJSON(w, n.sortedEvents(), nil)
		return
	}
	out := response.NewLines(w, n.IdleTimeout)
	out.Flush()
	seen := map[eventKey]api.Event{}
	tick := time.NewTicker(eventsInterval)
	defer tick.Stop()
	said := time.Now()
	for {
		now := map[eventKey]api.Event{}
		for _, e := range n.sortedEvents() {
			key := eventKey{e.Namespace, e.Pod, e.Container, e.Type, e.Reason, e.Message, e.First}
			now[key] = e
			if old, known := seen[key]; !known || old.Count != e.Count || !old.Last.Equal(e.Last) {
				out.Send(e)
				said = time.Now()
			}
		}
		seen = now
		if time.Since(said) >= response.AliveInterval {
			out.Send(api.Event{Type: api.EventAlive})
			said = time.Now()
		}
		if out.Err() != nil {
			return
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			out.Abort()
		}
	}
}

// An eventKey identifies an event. A repetition of an event has the same key.
type eventKey struct {
	namespace, pod, container, kind, reason, message string
	first                                            time.Time
}

// byAge compares events so that the latest one is sorted last.
func byAge(a, b api.Event) int { return cmp.Or(a.Last.Compare(b.Last), cmp.Compare(a.Pod, b.Pod)) }
