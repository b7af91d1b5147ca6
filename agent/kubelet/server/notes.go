package server

import (
	"cmp"
	"slices"
	"sort"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/agent/kubelet/server/podlist"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/keys"
)

// podWarnings returns a sentence about each field of the pod that has no effect on this node.
func (s *Server) podWarnings(pod *v1.Pod) (out []string) {
	if s.IgnoredFields != nil {
		_, out = s.IgnoredFields(pod)
	}
	return out
}

// podsWithIgnored returns the pods that have fields without effect. It omits pods that have ended or are
// being deleted.
func (s *Server) podsWithIgnored(pods []*v1.Pod) (list []api.Ignored) {
	if s.IgnoredFields == nil {
		return nil
	}
	for _, p := range pods {
		if podlist.IsEnding(p) {
			continue
		}
		if fields, _ := s.IgnoredFields(p); len(fields) > 0 {
			list = append(list, api.Ignored{Namespace: p.Namespace, Name: p.Name, Fields: fields})
		}
	}
	// slices.SortFunc would add 20 KB to the binary for each type of element.
	sort.Slice(list, func(i, j int) bool {
		return cmp.Or(cmp.Compare(list[i].Namespace, list[j].Namespace), cmp.Compare(list[i].Name, list[j].Name)) < 0
	})
	return list[:min(len(list), maxTroubles)]
}

// evictablePods returns the pods that the control plane deletes when the node has been unreachable for some
// time. Pods of DaemonSets are not among them, because they tolerate the taint of such a node for ever. The
// control plane cannot delete pods of other sources than the API server.
// https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/#taint-based-evictions
func evictablePods(pods []*v1.Pod) (names []string) {
	for _, p := range pods {
		owner := metav1.GetControllerOf(p)
		switch {
		case p.Annotations[keys.ConfigSource] != keys.SourceAPI, podlist.IsEnding(p), owner != nil && owner.Kind == "DaemonSet":
		case toleratesForever(p, v1.TaintNodeNotReady) && toleratesForever(p, v1.TaintNodeUnreachable):
		default:
			names = append(names, p.Namespace+"/"+p.Name)
		}
	}
	slices.Sort(names)
	return names
}

// toleratesForever reports whether a pod tolerates a taint without a value for ever. The first matching toleration decides, as in the
// control plane.
func toleratesForever(pod *v1.Pod, taint string) bool {
	for _, t := range pod.Spec.Tolerations {
		about := (t.Key == taint || t.Key == "") && (t.Effect == v1.TaintEffectNoExecute || t.Effect == "")
		equal := t.Value == "" && (t.Operator == v1.TolerationOpEqual || t.Operator == "")
		if about && (equal || t.Operator == v1.TolerationOpExists) {
			return t.TolerationSeconds == nil
		}
	}
	return false
}
