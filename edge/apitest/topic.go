package apitest

import (
	"net/http"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
)

// A topic is the scope of a list or a watch: all objects of a resource, or those that a field selector
// matches. Changes are stored and delivered by topic. So a watch receives only the changes of its own pods,
// also with ten thousand nodes. The index of a real server does the same.
type topic struct{ resource, field, value string }

// topicOf returns the topic of a request. topicOf ignores all other selectors.
func topicOf(r *http.Request, resource string) topic {
	first, _, _ := strings.Cut(r.URL.Query().Get("fieldSelector"), ",")
	field, value, _ := strings.Cut(first, "=")
	byName := field == "metadata.name" || field == "spec.signerName" && resource == "clustertrustbundles"
	if byName || field == "spec.nodeName" && resource == "pods" {
		return topic{resource, field, value}
	}
	return topic{resource: resource}
}

// topicsOf returns all topics of an object.
func topicsOf(o object) []topic {
	resource := resourceOf(o)
	all := []topic{{resource: resource}, {resource, "metadata.name", o.GetName()}}
	if p, ok := o.(*v1.Pod); ok {
		all = append(all, topic{resource, "spec.nodeName", p.Spec.NodeName})
	}
	if b, ok := o.(*certificatesv1.ClusterTrustBundle); ok {
		all = append(all, topic{resource, "spec.signerName", b.Spec.SignerName})
	}
	return all
}

// watchable reports whether a resource can be watched. Leases and Events cannot be watched: the Leases of
// many nodes would fill the memory with changes that no test watches.
func watchable(resource string) bool { return resource != "leases" && resource != "events" }

// The methods below require mu.

// keep creates or replaces an object.
func (s *Server) keep(k key, o object) {
	s.take(k)
	s.objects[k] = o
	for _, of := range topicsOf(o) {
		if s.index[of] == nil {
			s.index[of] = map[key]struct{}{}
		}
		s.index[of][k] = struct{}{}
	}
}

// take removes an object if it exists.
func (s *Server) take(k key) {
	o, there := s.objects[k]
	if !there {
		return
	}
	delete(s.objects, k)
	for _, of := range topicsOf(o) {
		delete(s.index[of], k)
		if len(s.index[of]) == 0 {
			delete(s.index, of)
		}
	}
}

// tell records a change for all topics of its object.
func (s *Server) tell(c change) {
	if !watchable(c.key.resource) {
		return
	}
	for _, of := range topicsOf(c.object) {
		s.note(of, c)
	}
}

func (s *Server) note(of topic, c change) {
	s.log[of] = append(s.log[of], c)
	s.wake(of)
}

// wake wakes the watches of a topic.
func (s *Server) wake(of topic) {
	if changed, ok := s.changed[of]; ok {
		close(changed)
		delete(s.changed, of)
	}
}

// nextChange returns a channel that is closed at the next change.
func (s *Server) nextChange(of topic) <-chan struct{} {
	changed, ok := s.changed[of]
	if !ok {
		changed = make(chan struct{})
		s.changed[of] = changed
	}
	if _, ok := s.log[of]; !ok {
		s.log[of] = nil // a log without changes: the next change is recorded
	}
	return changed
}
