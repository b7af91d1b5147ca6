package manifest

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/islet-edge/islet/internal/keys"
)

// checkNode returns an error for a pod of a manifest that names another node. A kubelet ignores the name and runs the pod, even if its
// manifest was copied to the wrong machine.
func checkNode(pod *v1.Pod, o Options) field.ErrorList {
	name := pod.Spec.NodeName
	if o.Source == keys.SourceAPI || o.NodeName == "" || name == "" || strings.EqualFold(name, o.NodeName) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("spec", "nodeName"), name,
		"the pod is for another node, and this node is "+o.NodeName+": remove the field, or use the manifest on that node")}
}
