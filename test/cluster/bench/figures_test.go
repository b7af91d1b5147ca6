// Package bench measures a node of a real cluster as its users see it. It measures the time from the creation of a pod until a watching
// client sees the pod ready, the bytes on the wire, and the resources of the node's processes. It runs only with make bench.
package bench

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/figures"
	"github.com/islet-edge/islet/test/machine"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/typed/core/v1"
)

func TestMain(m *testing.M) { cluster.Main(m) }

// These are the goals of the project, by number of pods.
var (
	readyGoal  = map[int]string{30: "0.8 s", 100: "2.5 s", 240: "9 s"} // with the OCI runtime of islet, which make bench uses
	probedGoal = map[int]string{30: "1.0 s", 100: "3.5 s"}
	deleteGoal = map[int]string{100: "3 s", 240: "6 s"}
	memoryGoal = map[int]string{30: "42 MiB", 100: "48 MiB"}
	cpuGoal    = map[int]string{100: "1 %"}
	idleGoal   = map[int]string{30: "60 B/s"}
	diskGoal   = map[int]string{30: "50 KiB/h"}

	anonymousGoal = map[int]string{30: "15 MiB", 100: "23 MiB"}
	burstGoal     = map[int]string{30: "8"} // the Lease needs six of them
)

func TestFigures(t *testing.T) {
	idle := figures.IdleTime(t)
	c := cluster.Start(t)
	n := c.Node(t, "")
	n.MeasureCPU = true
	n.Join("--max-pods=300")
	b := &bench{c: c, n: n, pods: c.Admin().CoreV1().Pods(c.Namespace(t))}
	b.single(t, 20)
	counts := []int{30, 100, 240}
	if s := os.Getenv("ISLET_BENCH_PODS"); s != "" {
		only, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		counts = []int{only}
	}
	for _, count := range counts {
		b.batch(t, count, idle)
		if goal, ok := probedGoal[count]; ok {
			b.probed(t, count, goal)
		}
	}
	b.outages(t)
	fmt.Print("\n", &b.table)
}

type bench struct {
	c     *cluster.Cluster
	n     *cluster.Node
	pods  v1.PodInterface
	probe *corev1.Probe      // readiness probe of the created pods, or nil
	init  []corev1.Container // init containers of the created pods
	stays bool               // the created pods tolerate a node that does not answer
	table figures.Table

	modified int // number of changes of pods that create has received
}

// single measures pods that start and end one after another.
func (b *bench) single(t *testing.T, rounds int) {
	var ready, gone []time.Duration
	for i := range rounds {
		names := []string{fmt.Sprintf("single%d", i)}
		ready = append(ready, b.create(t, names))
		gone = append(gone, b.remove(t, names))
	}
	slices.Sort(ready)
	slices.Sort(gone)
	b.table.Add("one pod: created to Ready, median", seconds(ready[rounds/2]), "0.25 s", "slowest "+seconds(ready[rounds-1]))
	b.table.Add("one pod: deleted to gone, median", seconds(gone[rounds/2]), "", "slowest "+seconds(gone[rounds-1]))
}

// batch measures many pods that are created at once, and the node that runs them.
func (b *bench) batch(t *testing.T, count int, idle time.Duration) {
	name := func(s string) string { return fmt.Sprintf("%d pods: %s", count, s) }
	var names []string
	for i := range count {
		names = append(names, fmt.Sprintf("p%03d", i))
	}
	cpu, written := b.n.CPU(), b.n.WrittenBytes()
	b.table.Add(name("created to all Ready"), seconds(b.create(t, names)), readyGoal[count], "")
	cpu = b.n.CPU() - cpu
	b.table.Add(name("CPU to start"), seconds(cpu), "", fmt.Sprintf("%.1f ms a pod", cpu.Seconds()*1000/float64(count)))
	b.table.Add(name("written while starting"), fmt.Sprintf("%.2f MiB", float64(b.n.WrittenBytes()-written)/(1<<20)), "", "")

	cluster.Pass(20 * time.Second) // the agent sends its last updates and collects garbage
	b.table.Add(name("memory of the node stack, PSS"), fmt.Sprintf("%.1f MiB", b.n.TotalPSS()), memoryGoal[count], "")
	anonymous := b.n.Anonymous()
	b.table.Add(name("anonymous memory of the node stack"), fmt.Sprintf("%.1f MiB", anonymous["agent"]+anonymous["shims"]),
		anonymousGoal[count], fmt.Sprintf("agent %.1f MiB, shims %.1f MiB", anonymous["agent"], anonymous["shims"]))
	cpu, written = b.n.CPU(), b.n.WrittenBytes()
	in, out := b.n.Bytes(t)
	bursts := b.n.CountBursts(idle)
	in2, out2 := b.n.Bytes(t)
	over := fmt.Sprintf("over %v", idle)
	b.table.Add(name("idle CPU of one core"), fmt.Sprintf("%.3f %%", 100*(b.n.CPU()-cpu).Seconds()/idle.Seconds()), cpuGoal[count], over)
	b.table.Add(name("written when idle"), fmt.Sprintf("%.1f KiB/h", float64(b.n.WrittenBytes()-written)/1024*3600/idle.Seconds()),
		diskGoal[count], over)
	b.table.Add(name("bursts of activity a minute when idle"), fmt.Sprintf("%.1f", bursts.PerMinute()), burstGoal[count], bursts.String())
	b.table.Add(name("received when idle"), fmt.Sprintf("%.0f B/s", float64(in2-in)/idle.Seconds()), idleGoal[count], over)
	b.table.Add(name("sent when idle"), fmt.Sprintf("%.0f B/s", float64(out2-out)/idle.Seconds()), idleGoal[count], over)

	b.table.Add(name("deleted to all gone, grace 1 s"), seconds(b.remove(t, names)), deleteGoal[count], "")
}

// probed measures pods with a readiness probe.
func (b *bench) probed(t *testing.T, count int, goal string) {
	b.probe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(8080)}}}
	defer func() { b.probe = nil }()
	var names []string
	for i := range count {
		names = append(names, fmt.Sprintf("probed%03d", i))
	}
	cluster.Pass(20 * time.Second) // the agent sends the updates of the former pods and collects garbage
	cpu := b.n.CPU()
	b.table.Add(fmt.Sprintf("%d pods with a readiness probe: created to all Ready", count), seconds(b.create(t, names)), goal,
		fmt.Sprintf("CPU %.1f ms a pod", (b.n.CPU()-cpu).Seconds()*1000/float64(count)))
	b.remove(t, names)
	cluster.Pass(20 * time.Second)
}

// outages measures a node after a power failure and after a cut of its link.
func (b *bench) outages(t *testing.T) {
	var names []string
	for i := range 10 {
		names = append(names, fmt.Sprintf("cut%d", i))
	}
	b.create(t, names)
	b.n.WaitReady(names...)
	b.n.Cut(t)
	b.n.Reboot()
	began := time.Now()
	b.n.Start()
	b.n.WaitReady(names...)
	b.table.Add("10 pods, no network: agent's start to all ready after a reboot", seconds(time.Since(began)), "5 s", "")

	back := func(how, goal string) {
		t.Helper()
		cluster.Pass(time.Minute)
		began := time.Now()
		b.n.Restore(t)
		b.create(t, []string{"back"})
		b.table.Add("link "+how+" for a minute, then back: a new pod is Ready", seconds(time.Since(began)), goal, "")
		b.remove(t, []string{"back"})
	}
	back("cut", "5 s")
	b.n.Silence(t)
	back("silent", "10 s")
	b.remove(t, names)
}

// create creates pods and returns the time until a watching client has received all of them as ready.
func (b *bench) create(t *testing.T, names []string) time.Duration {
	return b.watch(t, names, func(ctx context.Context, name string) error {
		grace, args := int64(1), []string{"sleep"}
		if b.probe != nil {
			args = []string{"serve", ":8080"}
		}
		var tolerations []corev1.Toleration
		if b.stays {
			tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}
		}
		_, err := b.pods.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PodSpec{
				Tolerations:                   tolerations,
				TerminationGracePeriodSeconds: &grace,
				InitContainers:                b.init,
				Containers:                    []corev1.Container{{Name: "c", Image: machine.Image, ImagePullPolicy: corev1.PullNever, Args: args, ReadinessProbe: b.probe}},
			},
		}, metav1.CreateOptions{})
		return err
	}, func(e watch.Event) bool {
		if e.Type == watch.Modified {
			b.modified++
		}
		return e.Type != watch.Deleted && cluster.PodReady(e.Object.(*corev1.Pod))
	})
}

// remove deletes pods and returns the time until a watching client has received all deletions.
func (b *bench) remove(t *testing.T, names []string) time.Duration {
	return b.watch(t, names, func(ctx context.Context, name string) error {
		return b.pods.Delete(ctx, name, metav1.DeleteOptions{})
	}, func(e watch.Event) bool { return e.Type == watch.Deleted })
}

func (b *bench) watch(t *testing.T, names []string, act func(context.Context, string) error, done func(watch.Event) bool) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), machine.WaitTimeout+time.Duration(len(names))*time.Second)
	defer cancel()
	list, err := b.pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := b.pods.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	began := time.Now()
	failed := make(chan error, 1)
	go func() {
		for _, name := range names {
			if err := act(ctx, name); err != nil {
				failed <- err
				return
			}
		}
	}()
	missing := map[string]bool{}
	for _, name := range names {
		missing[name] = true
	}
	for len(missing) > 0 {
		select {
		case e := <-w.ResultChan():
			pod, ok := e.Object.(*corev1.Pod)
			if !ok {
				t.Fatalf("the watch ended: %v", e)
			}
			if done(e) {
				delete(missing, pod.Name)
			}
		case err := <-failed:
			t.Fatal(err)
		}
	}
	return time.Since(began)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
