package pods

import "k8s.io/apimachinery/pkg/types"

// podOrigins looks up the file, URL, command or API server of pods. It asks the agent once for all pods.
type podOrigins struct {
	load  func() (map[types.UID]string, error)
	known map[types.UID]string
}

// of returns the origin of a pod. It returns "" if the origin is unknown, for example because the
// agent has an older version.
func (o *podOrigins) of(uid types.UID) string {
	if o.known == nil {
		o.known = map[types.UID]string{}
		if all, err := o.load(); err == nil && all != nil {
			o.known = all
		}
	}
	return o.known[uid]
}

// expect checks whether the agent's last answer contains the pod. If not, the next call of the method
// "of" requests a new answer.
func (o *podOrigins) expect(uid types.UID) {
	if _, ok := o.known[uid]; !ok {
		o.known = nil
	}
}
