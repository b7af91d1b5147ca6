package storage

import (
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/edge/store"
)

// Adopt takes up what runs of the agent before this one have mounted for pods, so that it is
// looked after before a container starts again. It is called once, when it is known what runs.
func (k *Keeper) Adopt(pods []*v1.Pod) {
	for _, pod := range pods {
		for i := range pod.Spec.Volumes {
			vol := &pod.Spec.Volumes[i]
			if !k.Serves(vol) {
				continue
			}
			v, d, err := k.resolve(pod, vol)
			if err != nil {
				continue // who starts the pod says so
			}
			a, ok := d.(Adopter)
			u := Use{Pod: pod, Volume: vol.Name, Path: k.path(pod, v, d)}
			if !ok || !k.isUp(store.VolumeKey{Volume: v.ID, Pod: string(pod.UID), Path: u.Path}) {
				continue
			}
			staged := ""
			if s, ok := d.(Stager); ok {
				staged = s.StagePath(v)
			}
			a.Adopt(v, staged, u)
		}
	}
}
