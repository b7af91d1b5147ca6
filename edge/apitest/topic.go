package apitest

import (
	"net/http"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
)

// A topic is the scope of a list or a watch: all objects of a resource, or the objects that a field selector matches. Changes are recorded
// for each topic. A watch therefore reads only the changes of its own pods, even in a test with ten thousand nodes. A real server uses an
// index for the same purpose.
type topic struct{ resource, field, value string }

// topicOf returns the topic of a request. It ignores selectors that are not part of a topic.
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
	topics := []topic{{resource: resource}, {resource, "metadata.name", o.GetName()}}
	if p, ok := o.(*v1.Pod); ok {
		topics = append(topics, topic{resource, "spec.nodeName", p.Spec.NodeName})
	}
	if b, ok := o.(*certificatesv1.ClusterTrustBundle); ok {
		topics = append(topics, topic{resource, "spec.signerName", b.Spec.SignerName})
	}
	return topics
}

// isWatchable reports whether a resource can be watched. It returns false for Leases and Events. No test watches them, and recorded changes
// of many Leases would fill the memory.
func isWatchable(resource string) bool { return resource != "leases" && resource != "events" }

// The methods below require mu.

// putObject creates or replaces an object.
func (s *Server) putObject(k key, o object) {
	s.removeObject(k)
	s.objects[k] = o
	for _, scope := range topicsOf(o) {
		if s.index[scope] == nil {
			s.index[scope] = map[key]struct{}{}
		}
		s.index[scope][k] = struct{}{}
	}
}

// removeObject removes an object if it exists.
func (s *Server) removeObject(k key) {
	o, found := s.objects[k]
	if !found {
		return
	}
	delete(s.objects, k)
	for _, scope := range topicsOf(o) {
		delete(s.index[scope], k)
		if len(s.index[scope]) == 0 {
			delete(s.index, scope)
		}
	}
}

// recordChange records a change for all topics of its object.
func (s *Server) recordChange(c change) {
	if !isWatchable(c.key.resource) {
		return
	}
	for _, scope := range topicsOf(c.object) {
		s.appendChange(scope, c)
	}
}

func (s *Server) appendChange(scope topic, c change) {
	s.log[scope] = append(s.log[scope], c)
	s.wakeWatches(scope)
}

// wakeWatches wakes the watches of a topic.
func (s *Server) wakeWatches(scope topic) {
	if changed, ok := s.changed[scope]; ok {
		close(changed)
		delete(s.changed, scope)
	}
}

// nextChange returns a channel that is closed at the next change.
func (s *Server) nextChange(scope topic) <-chan struct{} {
	changed, ok := s.changed[scope]
	if !ok {
		changed = make(chan struct{})
		s.changed[scope] = changed
	}
	if _, ok := s.log[scope]; !ok {
		s.log[scope] = nil // an empty entry makes note record the next change
	}
	return changed
}
