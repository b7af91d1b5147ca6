package storage

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/eventtest"
)

// A meteredDriver is a driver that measures its volumes. The test can make it hang.
type meteredDriver struct {
	growingDriver
	mu    sync.Mutex
	usage Usage
	err   error
	hang  chan struct{} // nil: the driver responds
	asked int
}

func (m *meteredDriver) Usage(context.Context, Volume, string) (Usage, error) {
	m.mu.Lock()
	hang, u, err := m.hang, m.usage, m.err
	m.asked++
	m.mu.Unlock()
	if hang != nil {
		<-hang
	}
	return u, err
}

func (m *meteredDriver) calls() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked
}

func (m *meteredDriver) set(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// TestStats checks that volumes are measured on request, at most once a period. A hanging measurement does not delay other callers. They
// get the last figures.
func TestStats(t *testing.T) {
	root, dir := t.TempDir(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, dir)
		defer s.Close()
		o, m := &objects{}, &meteredDriver{usage: Usage{Capacity: 100, Used: 30, Available: 70, Inodes: -1, InodesUsed: -1, InodeFree: -1}}
		o.bound("c", v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}})
		k := newMounter(t, root, s, o, m)
		var events []string
		k.cfg.Period, k.cfg.Event = time.Minute, func(p *v1.Pod, kind, reason, message string) {
			eventtest.RecordEvent(kind, reason, message)
			events = append(events, p.Name+" "+kind+" "+reason+" "+message)
		}
		p := podWith("p", "c", "unbound")
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: "own", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
		pods := []*v1.Pod{p, podWith("q", "c")} // the second pod has not mounted the volume
		if got := k.Stats(t.Context(), pods); len(got) != 0 || m.calls() != 0 {
			t.Errorf("statistics of a volume that is not mounted: %+v", got)
		}
		_, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], "")
		requireNoError(t, err)
		time.Sleep(time.Hour)
		if m.calls() != 0 {
			t.Error("measured without a request")
		}
		for range 3 {
			got := k.Stats(t.Context(), pods)
			if v := got[p.UID]; len(got) != 1 || len(v) != 1 || v[0].Name != "c" || v[0].PVCRef.Name != "c" || v[0].PVCRef.Namespace != "default" ||
				*v[0].CapacityBytes != 100 || *v[0].UsedBytes != 30 || *v[0].AvailableBytes != 70 || v[0].Inodes != nil {
				t.Errorf("%+v", got)
			}
		}
		if m.calls() != 1 || len(events) != 0 {
			t.Error(m.calls(), events)
		}
		m.set(func() { m.usage.Used, m.usage.Abnormal = 31, "it smells" })
		for range 3 {
			time.Sleep(time.Minute)
			if v := k.Stats(t.Context(), pods)[p.UID]; *v[0].UsedBytes != 31 {
				t.Errorf("%+v", v)
			}
		}
		synctest.Wait()
		if m.calls() != 4 || len(events) != 1 || events[0] != "p Warning VolumeConditionAbnormal Volume c: it smells" {
			t.Error(m.calls(), events)
		}
		m.set(func() { m.err = errors.New("busy") })
		time.Sleep(time.Minute)
		if v := k.Stats(t.Context(), pods)[p.UID]; *v[0].UsedBytes != 31 {
			t.Errorf("%+v", v)
		}
		// The measurement hangs. The first caller waits for meterTime, and the next caller does not wait. Only one call is running.
		hang := make(chan struct{})
		m.set(func() { m.err, m.hang, m.usage.Used = nil, hang, 32 })
		time.Sleep(time.Minute)
		for i, want := range []time.Duration{meterTime, 0, 0} {
			began := time.Now()
			if v := k.Stats(t.Context(), pods)[p.UID]; *v[0].UsedBytes != 31 || time.Since(began) != want {
				t.Errorf("%d: after %s: %+v", i, time.Since(began), v)
			}
			time.Sleep(time.Hour)
		}
		if m.calls() != 6 {
			t.Error("calls", m.calls())
		}
		requireNoError(t, k.TearDown(t.Context(), p.UID))
		close(hang)
		synctest.Wait()
		if got := k.Stats(t.Context(), nil); len(got) != 0 || len(k.measures) != 0 {
			t.Errorf("left: %+v, %d", got, len(k.measures))
		}
		k.cfg.Period = -1
		if k.Stats(t.Context(), pods) != nil {
			t.Error("measured although it is disabled")
		}
	})
}

// TestStatsOfFileSystem checks that the figures of a volume come from its file system if its driver cannot measure it.
func TestStatsOfFileSystem(t *testing.T) {
	root, s := t.TempDir(), openStore(t, t.TempDir())
	defer s.Close()
	o := &objects{}
	o.bound("c", v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: t.TempDir()}})
	k := newMounter(t, root, s, o)
	p := podWith("p", "c")
	_, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], "")
	requireNoError(t, err)
	defer func() { requireNoError(t, k.TearDown(context.Background(), p.UID)) }()
	v := k.Stats(t.Context(), []*v1.Pod{p})[p.UID]
	if len(v) != 1 || *v[0].CapacityBytes == 0 || *v[0].UsedBytes > *v[0].CapacityBytes ||
		*v[0].AvailableBytes > *v[0].CapacityBytes {
		t.Errorf("%+v", v)
	}
}

// TestVolumeMetrics checks that the metrics contain each claim once. They also contain the durations of operations.
func TestVolumeMetrics(t *testing.T) {
	root, s := t.TempDir(), openStore(t, t.TempDir())
	defer s.Close()
	o, m := &objects{}, &meteredDriver{usage: Usage{Capacity: 100, Used: 30, Available: 70, Inodes: 9, InodesUsed: 4, InodeFree: 5, Abnormal: "it smells"}}
	o.bound("c", v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}})
	k := newMounter(t, root, s, o, m)
	pods := []*v1.Pod{podWith("p", "c"), podWith("q", "c")}
	for _, p := range pods {
		_, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], "")
		requireNoError(t, err)
	}
	requireNoError(t, k.TearDown(t.Context(), types.UID("uid-q")))
	r := prometheus.NewRegistry()
	for _, c := range k.Collectors(func() []*v1.Pod { return pods }) {
		requireNoError(t, r.Register(c))
	}
	all, err := r.Gather()
	requireNoError(t, err)
	got := map[string]float64{}
	for _, f := range all {
		for _, one := range f.Metric {
			name := f.GetName()
			for _, l := range one.Label {
				name += " " + l.GetValue()
			}
			got[name] = one.Gauge.GetValue()
			if f.GetType() == dto.MetricType_HISTOGRAM {
				got[name] = float64(one.Histogram.GetSampleCount())
			}
		}
	}
	want := map[string]float64{
		"kubelet_volume_stats_capacity_bytes default c": 100, "kubelet_volume_stats_used_bytes default c": 30, "kubelet_volume_stats_available_bytes default c": 70,
		"kubelet_volume_stats_inodes default c": 9, "kubelet_volume_stats_inodes_used default c": 4, "kubelet_volume_stats_inodes_free default c": 5,
		"storage_operation_duration_seconds false volume_mount success kubernetes.io/csi:d": 2, "storage_operation_duration_seconds false volume_unmount success kubernetes.io/csi:d": 1,
	}
	for name, n := range want {
		if got[name] != n {
			t.Errorf("%s is %v, not %v", name, got[name], n)
		}
	}
	if len(got) != len(want) {
		t.Error(got)
	}
}
