package podspec

import (
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/keys"
)

// MirrorName returns the name of a pod in the API server. It differs from the pod's name on this node for a static pod without the
// node's name in its name: the same bundle may run on many nodes of a cluster, and each of the mirror pods needs a name of its own. The
// separator is a dot, because web-NODE is the name of the pod web from the manifest directory.
func MirrorName(p *v1.Pod) string {
	switch p.Annotations[keys.ConfigSource] {
	case keys.SourceLocal, keys.SourceBundle:
		return p.Name + "." + strings.ToLower(p.Spec.NodeName)
	}
	return p.Name
}
