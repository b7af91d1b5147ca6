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

// meterTime is the maximum time for which Stats waits for the results of all volumes. Results that arrive later are
// returned by the next call of Stats.
const meterTime = 2 * time.Second

// A measuredUsage contains the last measured usage of a pod's volume.
type measuredUsage struct {
	Usage
	measuredAt      time.Time     // zero if the volume has never been measured
	startedAt       time.Time     // when the last measurement started
	done            chan struct{} // closed when the measurement has ended; nil if none is running
	reportedProblem string        // the last Abnormal for which an event was recorded
}

// Stats returns the usage of the volumes that are mounted for pods, for the Summary API. It obtains the usage
// from the drivers or file systems. It reuses a result that is younger than the configured period. At most
// one measurement of each volume is running. A measurement that hangs blocks neither Stats nor an unmount.
// Stats omits volumes that have never been measured.
func (k *Mounter) Stats(ctx context.Context, pods []*v1.Pod) map[types.UID][]stats.VolumeStats {
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
			v, d, err := k.resolveVolume(pod, vol)
			if err != nil {
				continue // starting the pod reports the error
			}
			path := k.volumePath(pod, v, d)
			key := store.VolumeKey{Volume: v.ID, Pod: string(pod.UID), Path: path}
			if done := k.startMeasurement(pod, vol.Name, v, d, key); done != nil {
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
		if m := k.measures[w.path]; m != nil && !m.measuredAt.IsZero() {
			out[w.pod.UID] = append(out[w.pod.UID], m.toStats(w.name, w.ref))
		}
	}
	for path, m := range k.measures {
		if !seen[path] && m.done == nil {
			delete(k.measures, path)
		}
	}
	return out
}

// claimOf returns the name of a volume's claim. It returns "" if the volume has none.
func (k *Mounter) claimOf(pod *v1.Pod, vol *v1.Volume) string {
	switch {
	case vol.PersistentVolumeClaim != nil:
		return vol.PersistentVolumeClaim.ClaimName
	case vol.Ephemeral != nil:
		return k.cfg.Claim(pod, vol.Name)
	}
	return ""
}

// startMeasurement starts a measurement of a volume if one is due. It returns a channel that is closed when the measurement
// has ended, or nil if the caller need not wait.
func (k *Mounter) startMeasurement(pod *v1.Pod, name string, v Volume, d Driver, key store.VolumeKey) <-chan struct{} {
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, noted := k.rows[key]; !noted {
		return nil
	}
	m := k.measures[key.Path]
	switch {
	case m == nil:
		m = &measuredUsage{}
		k.measures[key.Path] = m
	case m.done != nil && now.Sub(m.startedAt) < meterTime:
		return m.done // a measurement is running
	case m.done != nil || now.Sub(m.startedAt) < k.cfg.Period:
		return nil
	}
	m.startedAt, m.done = now, make(chan struct{})
	done := m.done
	go func() {
		var u Usage
		err := callRecovering(context.Background(), func(ctx context.Context) (err error) {
			if !k.isUp(key) {
				return errors.ErrUnsupported
			}
			u, err = measureUsage(ctx, v, d, key.Path)
			return err
		})
		k.mu.Lock()
		m.done = nil
		news := ""
		if err == nil {
			if u.Abnormal != "" && u.Abnormal != m.reportedProblem {
				news = u.Abnormal
			}
			m.Usage, m.measuredAt, m.reportedProblem = u, now, u.Abnormal
		}
		k.mu.Unlock()
		close(done)
		if news != "" {
			k.recordEvent(pod, v1.EventTypeWarning, "VolumeConditionAbnormal", fmt.Sprintf("Volume %s: %s", name, news))
		}
		if err != nil && !errors.Is(err, errors.ErrUnsupported) {
			k.cfg.Log.Debug("cannot measure a volume", "pod", pod.Namespace+"/"+pod.Name, "uid", pod.UID, "volume", name, "error", err)
		}
	}()
	return done
}

// measureUsage measures a volume. It may block while the driver or server does not respond.
func measureUsage(ctx context.Context, v Volume, d Driver, path string) (Usage, error) {
	switch m, ok := d.(Meter); {
	case ok:
		return m.Usage(ctx, v, path)
	case v.Source.HostPath != nil: // the statistics of the node already include the host's file system
		return Usage{}, errors.ErrUnsupported
	case v.Block:
		return deviceSize(path)
	}
	var st unix.Statfs_t
	if err := mounts.CheckResponding(path); err != nil {
		return Usage{}, err
	}
	if err := unix.Statfs(path, &st); err != nil {
		return Usage{}, fmt.Errorf("statfs %s: %w", path, err)
	}
	size := int64(st.Frsize) //nolint:unconvert // the field has another type on 32-bit machines
	return Usage{
		Capacity: int64(st.Blocks) * size, Available: int64(st.Bavail) * size, Used: int64(st.Blocks-st.Bfree) * size,
		Inodes: int64(st.Files), InodeFree: int64(st.Ffree), InodesUsed: int64(st.Files - st.Ffree),
	}, nil
}

// deviceSize returns the size of a block volume. The usage is unknown.
func deviceSize(path string) (Usage, error) {
	out := Usage{Used: -1, Available: -1, Inodes: -1, InodesUsed: -1, InodeFree: -1}
	real, err := resolveDevice(path)
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

func (m *measuredUsage) toStats(name string, ref *stats.PVCReference) stats.VolumeStats {
	return stats.VolumeStats{Name: name, PVCRef: ref, FsStats: stats.FsStats{
		Time: metav1.NewTime(m.measuredAt), CapacityBytes: nonNegative(m.Capacity),
		AvailableBytes: nonNegative(m.Available), UsedBytes: nonNegative(m.Used),
		Inodes: nonNegative(m.Inodes), InodesFree: nonNegative(m.InodeFree), InodesUsed: nonNegative(m.InodesUsed),
	}}
}

func nonNegative(n int64) *uint64 {
	if n < 0 {
		return nil
	}
	u := uint64(n)
	return &u
}
