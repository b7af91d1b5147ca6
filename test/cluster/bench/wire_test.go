package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/figures"
	"github.com/islet-edge/islet/test/machine"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// TestWire measures the bytes and the writes of pods that start at the same time, and the bytes of an agent that starts on a node with
// pods.
func TestWire(t *testing.T) {
	figures.SkipUnlessBench(t)
	c := cluster.Start(t)
	n := c.Node(t, "")
	n.Join("--max-pods=300")
	b := &bench{c: c, n: n, pods: c.Admin().CoreV1().Pods(c.Namespace(t))}
	t.Cleanup(func() { fmt.Print("\n", &b.table) }) // also after a failed measurement
	for _, count := range []int{30, 100} {
		b.started(t, count, "that sleep", func() {
			b.restarted(t, count)
			b.resumed(t, count)
		})
		for i := range 2 {
			b.init = append(b.init, corev1.Container{Name: fmt.Sprint("init", i), Image: machine.Image, ImagePullPolicy: corev1.PullNever,
				Args: []string{"exit", "0", "2s"}})
		}
		b.probe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(8080)}},
			InitialDelaySeconds: 2, PeriodSeconds: 1}
		b.started(t, count, "with two init containers of 2 s and a probe after 2 s", func() {})
		b.init, b.probe = nil, nil
	}
}

// started measures pods that start at the same time. While the pods run, it calls the given function.
func (b *bench) started(t *testing.T, count int, which string, then func()) {
	var names []string
	for i := range count {
		names = append(names, fmt.Sprintf("p%03d", i))
	}
	name := func(s string) string { return fmt.Sprintf("%d pods %s: %s", count, which, s) }
	cluster.Pass(20 * time.Second) // the agent sends its earlier updates
	in, out := b.n.Bytes(t)
	b.modified = 0
	took := b.create(t, names)
	b.table.Add(name("created to all Ready"), seconds(took), "", "")
	b.table.Add(name("changes that a watcher sees until then"), fmt.Sprint(b.modified), "",
		fmt.Sprintf("%.1f a pod", float64(b.modified)/float64(count)))
	cluster.Pass(20 * time.Second) // the agent sends the events
	in2, out2 := b.n.Bytes(t)
	b.table.Add(name("received / sent"), fmt.Sprintf("%.0f / %.0f KiB", kib(in2-in), kib(out2-out)), "",
		fmt.Sprintf("%.1f / %.1f KiB a pod", kib(in2-in)/float64(count), kib(out2-out)/float64(count)))
	then()
	b.remove(t, names)
}

// restarted measures the start of an agent after a SIGKILL.
func (b *bench) restarted(t *testing.T, count int) {
	b.n.Kill()
	in, out := b.n.Bytes(t)
	b.n.Start("--max-pods=300")
	cluster.Pass(15 * time.Second)
	in2, out2 := b.n.Bytes(t)
	b.table.Add(fmt.Sprintf("%d pods: an agent starts and reads them: received / sent", count),
		fmt.Sprintf("%.1f / %.1f KiB", kib(in2-in), kib(out2-out)), "", "within 15 s")
}

// resumed measures a node whose link is restored after a minute.
func (b *bench) resumed(t *testing.T, count int) {
	b.n.Cut(t)
	cluster.Pass(time.Minute)
	in, out := b.n.Bytes(t)
	b.n.Restore(t)
	cluster.Pass(15 * time.Second)
	in2, out2 := b.n.Bytes(t)
	b.table.Add(fmt.Sprintf("%d pods: the link is back after a minute: received / sent", count),
		fmt.Sprintf("%.1f / %.1f KiB", kib(in2-in), kib(out2-out)), "", "within 15 s")
}

func kib(bytes int64) float64 { return float64(bytes) / 1024 }
