package describe

import (
	"cmp"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/desired"
)

// Origin returns the file or URL of a pod's manifest, the command that applied it, or the API server that the pod comes
// from. It returns "" for a pod that is not desired any more.
func (a *Describer) Origin(uid types.UID) string {
	p, ok := a.c.Desired.Get(uid)
	switch {
	case !ok:
		return ""
	case p.Source == desired.Local:
		return "islet apply"
	case p.Source != desired.API:
		return p.Origin
	case a.c.Cluster == nil: // the node had an API server at its last start
		return "an API server"
	}
	return cmp.Or(a.c.Cluster.Link.Client().Host(), "the API server")
}
