package storage

import (
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/edge/store"
)

// Adopt registers the volumes that a previous process has published with their drivers. The drivers then maintain
// these volumes even if no container starts. Adopt must be called once, when the running pods are known.
func (k *Mounter) Adopt(pods []*v1.Pod) {
	for _, pod := range pods {
		for i := range pod.Spec.Volumes {
			vol := &pod.Spec.Volumes[i]
			if !k.Serves(vol) {
				continue
			}
			v, d, err := k.resolveVolume(pod, vol)
			if err != nil {
				continue // starting the pod reports the error
			}
			a, ok := d.(Adopter)
			u := Use{Pod: pod, Volume: vol.Name, Path: k.volumePath(pod, v, d)}
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
