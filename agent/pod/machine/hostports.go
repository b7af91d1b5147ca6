package machine

import (
	"os"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/spec/portconflict"
)

// PortConflicts returns one sentence for each host port of the pods at which a program of the host listens now. It reads the
// host's sockets only if one of the pods has a host port.
func (n *Machine) PortConflicts(pods []*v1.Pod) map[types.UID][]string {
	if !slices.ContainsFunc(pods, portconflict.IsChecked) {
		return nil
	}
	sockets, err := portconflict.ListSockets(os.DirFS("/"))
	if err != nil {
		return nil // the pods run nevertheless, and the hook logs the error
	}
	out := map[types.UID][]string{}
	for _, p := range pods {
		if !portconflict.IsChecked(p) {
			continue
		}
		if found := portconflict.FindConflicts(p, sockets); len(found) > 0 {
			out[p.UID] = found
		}
	}
	return out
}
