package status

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/agent/kubelet/server/podlist"
	"github.com/islet-edge/islet/internal/keys"
)

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
