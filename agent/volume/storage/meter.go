package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/runtime/mounts"
)

// meterTime is how long an answer waits for volumes, all together. What takes longer is in
// the next answer.
const meterTime = 2 * time.Second

// A measure is what is known of how full a volume of a pod is.
type measure struct {
	Usage
	at    time.Time     // zero: it was never measured
	tried time.Time     // when the last call began
	done  chan struct{} // closed when the call has ended; nil: none is under way
	told  string        // what was abnormal when people were told
}

// Stats measures the volumes of pods that are mounted, for the Summary API: by their drivers,
// or by their file systems. What is not older than the period is not measured again. At most one
// call for a volume is under way, and nobody waits for one that hangs: neither this, nor who
// unmounts the volume. A volume that was never measured is left out.
func (k *Keeper) Stats(ctx context.Context, pods []*v1.Pod) map[types.UID][]stats.VolumeStats {
	if k.cfg.Period < 0 {
		return nil
	}
	type want struct {
		pod  *v1.Pod
		name string
		ref  *stats.PVCReference
		path string
	}
	var all []want
	var waits []<-chan struct{}
	seen := map[string]bool{}
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
			path := k.path(pod, v, d)
			key := store.VolumeKey{Volume: v.ID, Pod: string(pod.UID), Path: path}
			if done := k.measure(pod, vol.Name, v, d, key); done != nil {
				waits = append(waits, done)
			}
			w := want{pod: pod, name: vol.Name, path: path}
			if name := k.claimOf(pod, vol); name != "" {
				w.ref = &stats.PVCReference{Name: name, Namespace: pod.Namespace}
			}
			seen[path] = true
			all = append(all, w)
		}
	}
	ctx, stop := context.WithTimeout(ctx, meterTime)
	defer stop()
	for _, done := range waits {
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	out := map[types.UID][]stats.VolumeStats{}
	for _, w := range all {
		if m := k.measures[w.path]; m != nil && !m.at.IsZero() {
			out[w.pod.UID] = append(out[w.pod.UID], m.stats(w.name, w.ref))
		}
	}
	for path, m := range k.measures {
		if !seen[path] && m.done == nil {
			delete(k.measures, path)
		}
	}
	return out
}

// claimOf names the claim of a volume; empty: it has none.
func (k *Keeper) claimOf(pod *v1.Pod, vol *v1.Volume) string {
	switch {
	case vol.PersistentVolumeClaim != nil:
		return vol.PersistentVolumeClaim.ClaimName
	case vol.Ephemeral != nil:
		return k.cfg.Claim(pod, vol.Name)
	}
	return ""
}

// measure has a volume measured if that is due, and gives what to wait for; nil: nothing.
func (k *Keeper) measure(pod *v1.Pod, name string, v Volume, d Driver, key store.VolumeKey) <-chan struct{} {
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, noted := k.rows[key]; !noted {
		return nil
	}
	m := k.measures[key.Path]
	switch {
	case m == nil:
		m = &measure{}
		k.measures[key.Path] = m
	case m.done != nil && now.Sub(m.tried) < meterTime:
		return m.done // somebody else asks
	case m.done != nil || now.Sub(m.tried) < k.cfg.Period:
		return nil
	}
	m.tried, m.done = now, make(chan struct{})
	done := m.done
	go func() {
		var u Usage
		err := guarded(context.Background(), func(ctx context.Context) (err error) {
			if !k.isUp(key) {
				return errors.ErrUnsupported
			}
			u, err = usageOf(ctx, v, d, key.Path)
			return err
		})
		k.mu.Lock()
		m.done = nil
		news := ""
		if err == nil {
			if u.Abnormal != "" && u.Abnormal != m.told {
				news = u.Abnormal
			}
			m.Usage, m.at, m.told = u, now, u.Abnormal
		}
		k.mu.Unlock()
		close(done)
		if news != "" {
			k.event(pod, v1.EventTypeWarning, "VolumeConditionAbnormal", fmt.Sprintf("Volume %s: %s", name, news))
		}
		if err != nil && !errors.Is(err, errors.ErrUnsupported) {
			k.cfg.Log.Debug("a volume cannot be measured", "pod", pod.Namespace+"/"+pod.Name, "uid", pod.UID, "volume", name, "error", err)
		}
	}()
	return done
}

// usageOf measures a volume. It may hang, as long as its driver or server does.
func usageOf(ctx context.Context, v Volume, d Driver, path string) (Usage, error) {
	switch m, ok := d.(Meter); {
	case ok:
		return m.Usage(ctx, v, path)
	case v.Source.HostPath != nil: // the host's own file system, as it is shown for the node
		return Usage{}, errors.ErrUnsupported
	case v.Block:
		return deviceSize(path)
	}
	var st unix.Statfs_t
	if err := mounts.Answers(path); err != nil {
		return Usage{}, err
	}
	if err := unix.Statfs(path, &st); err != nil {
		return Usage{}, fmt.Errorf("statfs %s: %w", path, err)
	}
	size := int64(st.Frsize) //nolint:unconvert // another type on 32 bits
	return Usage{
		Capacity: int64(st.Blocks) * size, Available: int64(st.Bavail) * size, Used: int64(st.Blocks-st.Bfree) * size,
		Inodes: int64(st.Files), InodeFree: int64(st.Ffree), InodesUsed: int64(st.Files - st.Ffree),
	}, nil
}

// deviceSize is all that is known of a block volume.
func deviceSize(path string) (Usage, error) {
	out := Usage{Used: -1, Available: -1, Inodes: -1, InodesUsed: -1, InodeFree: -1}
	real, err := device(path)
	if err != nil {
		return out, err
	}
	f, err := os.Open(real)
	if err != nil {
		return out, err
	}
	defer f.Close()
	out.Capacity, err = f.Seek(0, io.SeekEnd)
	return out, err
}

func (m *measure) stats(name string, ref *stats.PVCReference) stats.VolumeStats {
	out := stats.VolumeStats{Name: name, PVCRef: ref, FsStats: stats.FsStats{
		Time: metav1.NewTime(m.at), CapacityBytes: known(m.Capacity), AvailableBytes: known(m.Available), UsedBytes: known(m.Used),
		Inodes: known(m.Inodes), InodesFree: known(m.InodeFree), InodesUsed: known(m.InodesUsed),
	}}
	if m.Health {
		out.VolumeHealthStats = &stats.VolumeHealthStats{Abnormal: m.Abnormal != ""}
	}
	return out
}

func known(n int64) *uint64 {
	if n < 0 {
		return nil
	}
	u := uint64(n)
	return &u
}
