package admit

import (
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/finding"
	"github.com/islet-edge/islet/internal/realtime"
)

// Unsupported returns the fields of a pod that have no effect on a node with default settings, and the reason why such a node would
// reject the pod. Only the settings for real time are given. Other settings may permit the pod, except for a pod of another operating
// system. Labels, taints, resources and security modules differ per node, so Unsupported does not consider them. It also does not consider
// whether the host can fulfil the real time that the settings allow. The findings contain no file, no line and no object.
func Unsupported(pod *v1.Pod, allowed config.RealTime) (out []finding.Finding) {
	n := Node{OS: "linux", Arch: pod.Spec.NodeSelector[v1.LabelArchStable], Limits: true, StrictGroups: true,
		Labels: maps.Clone(pod.Spec.NodeSelector)}
	n.RealTime.Config = allowed
	for _, f := range IgnoredFields(pod, n) {
		out = append(out, finding.Finding{Severity: finding.Warning, Field: f.Field, Message: f.Effect})
	}
	plain := pod.DeepCopy()
	plain.Spec.Affinity, plain.Spec.NodeName = nil, ""
	if r := Admit(NewHolder(plain), nil, n); r != nil && r.Reason != realtime.Unavailable {
		f := finding.Finding{Severity: finding.Warning,
			Message: "is rejected with the default settings of a node: " + r.Reason + ": " + r.Message}
		if r.Reason == realtime.Forbidden && len(allowed.Pods) > 0 {
			f.Message = "is rejected with the settings that were checked: " + r.Reason + ": " + r.Message
		}
		if strings.HasPrefix(r.Reason, "PodOS") {
			f.Severity = finding.Error
		}
		switch r.Reason {
		case "SysctlForbidden":
			f.Field = "spec.securityContext.sysctls"
		case realtime.Forbidden:
			f.Field = "metadata.annotations"
		}
		out = append(out, f)
	}
	return out
}
