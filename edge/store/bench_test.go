package store

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// written returns the number of bytes that this process has passed to write(2).
func written(t testing.TB) (n int64) {
	t.Helper()
	data, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(string(data[strings.Index(string(data), "wchar:"):]), "wchar: %d", &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// typical returns a pod of ordinary size with all defaults.
func typical(uid string) Pod {
	p := pod(uid, "pod-"+uid)
	p.Pod.Labels = map[string]string{"app": "sensor", "tier": "edge"}
	p.Pod.Annotations = map[string]string{"kubernetes.io/config.hash": uid, "kubernetes.io/config.source": "file",
		"kubernetes.io/config.seen": "2026-11-21T02:15:00.000000000Z"}
	for i := range 2 {
		p.Pod.Spec.Containers = append(p.Pod.Spec.Containers, v1.Container{
			Name: fmt.Sprintf("c%d", i), Image: "registry.example.com/team/sensor:v1.2.3", Args: []string{"--listen", ":8080", "--verbose"},
			Env: []v1.EnvVar{{Name: "POD_NAME",
				ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}}}},
			VolumeMounts:           []v1.VolumeMount{{Name: "data", MountPath: "/data"}},
			TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: "File", ImagePullPolicy: "IfNotPresent",
		})
	}
	return p
}

// BenchmarkHundredPods writes the rows of a hundred new pods, one pod after the other. A pod has one pod row, one address and three
// statuses.
func BenchmarkHundredPods(b *testing.B) {
	ctx := b.Context()
	var bytes, closing int64
	for b.Loop() {
		s := open(b, filepath.Join(b.TempDir(), "islet.db"))
		before := written(b)
		for i := range 100 {
			p := typical(fmt.Sprintf("%032x", i*7919))
			p.Seq = int64(i)
			if err := s.UpdatePods(ctx, []Pod{p}, nil); err != nil {
				b.Fatal(err)
			}
			if err := s.AddLease(ctx, netip.AddrFrom4([4]byte{10, 42, 0, byte(i)}), "sandbox-"+string(p.Pod.UID)); err != nil {
				b.Fatal(err)
			}
			s.PutStatus(p.Pod.UID, &v1.PodStatus{Phase: v1.PodRunning, PodIP: "10.42.0.1", Conditions: make([]v1.PodCondition, 5)})
			if i%10 == 9 {
				s.flush()
			}
		}
		open := written(b)
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		bytes += written(b) - before
		closing += written(b) - open
	}
	b.ReportMetric(float64(bytes)/float64(b.N)/100, "B/pod")
	b.ReportMetric(float64(closing)/float64(b.N)/100, "closing-B/pod")
}

// BenchmarkOpen measures Open for a node with a hundred pods.
func BenchmarkOpen(b *testing.B) {
	path := filepath.Join(b.TempDir(), "islet.db")
	filled(b, path, 100, true)
	for b.Loop() {
		s := open(b, path)
		if pods, err := s.Pods(b.Context()); err != nil || len(pods) != 100 {
			b.Fatal(len(pods), err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
