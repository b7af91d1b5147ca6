package storage

import (
	"context"
	"time"

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
			if v, d, err := k.resolveVolume(pod, vol); err == nil { // starting the pod reports the error
				k.adoptVolume(v, d, Use{Pod: pod, Volume: vol.Name, Path: k.volumePath(pod, v, d)})
			}
		}
	}
}

// adoptVolume registers a volume with its driver if the volume is mounted.
func (k *Mounter) adoptVolume(v Volume, d Driver, u Use) {
	a, ok := d.(Adopter)
	if !ok || !k.isUp(store.VolumeKey{Volume: v.ID, Pod: string(u.Pod.UID), Path: u.Path}) {
		return
	}
	staged := ""
	if s, ok := d.(Stager); ok {
		staged = s.StagePath(v)
	}
	a.Adopt(v, staged, u)
}

// ifIdle calls f, and no other call for the use runs meanwhile. It does nothing if such a call is running already. f must not take long.
func (k *Mounter) ifIdle(use volumeUse, f func(context.Context)) {
	ctx, stop := context.WithTimeout(k.life, time.Second) // another call may begin just now
	defer stop()
	k.mu.Lock()
	busy := k.locks[use] != nil
	k.mu.Unlock()
	if busy {
		return
	}
	if leave, err := k.lock(ctx, use); err == nil {
		defer leave()
		f(ctx)
	}
}
