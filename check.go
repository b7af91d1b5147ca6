package main

import (
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/spec/admit"
	"github.com/islet-edge/islet/edge/check"
	"github.com/islet-edge/islet/internal/finding"
)

// checkFiles checks manifests and configurations for islet check and islet apply --dry-run. The rules for what a node does not support are
// those of its admission. A known node applies them itself, with its settings.
func checkFiles(files []finding.File, node *finding.Node) finding.Report {
	var rules check.Rules
	if node == nil {
		rules.Unsupported = unsupported
	}
	return rules.Check(files, node)
}

// unsupported returns the fields of a pod that have no effect on a node with default settings, and the reason why such a node would reject
// the pod. Other settings may permit the pod, except for a pod of another operating system. Labels, taints, resources and security modules
// differ per node, so unsupported does not consider them.
func unsupported(pod *v1.Pod) (out []check.Unsupported) {
	n := admit.Node{OS: "linux", Arch: pod.Spec.NodeSelector[v1.LabelArchStable], Limits: true, Labels: maps.Clone(pod.Spec.NodeSelector)}
	for _, f := range admit.IgnoredFields(pod, n) {
		out = append(out, check.Unsupported{Field: f.Field, Message: f.Effect})
	}
	plain := pod.DeepCopy()
	plain.Spec.Affinity, plain.Spec.NodeName = nil, ""
	if r := admit.Admit(admit.NewHolder(plain), nil, n); r != nil {
		u := check.Unsupported{Message: "is rejected with the default settings of a node: " + r.Reason + ": " + r.Message}
		u.Rejects = strings.HasPrefix(r.Reason, "PodOS")
		if r.Reason == "SysctlForbidden" {
			u.Field = "spec.securityContext.sysctls"
		}
		out = append(out, u)
	}
	return out
}
