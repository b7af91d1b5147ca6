package bench

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/figures"
)

// quiet is the time after which a node has sent its last request about a change. A node delays events for at most ten seconds, and
// removes stale ResourceSlices half a minute after the start of the agent, as a kubelet does.
const quiet = 40 * time.Second

// A phase is a part of TestControlPlane.
type phase struct {
	name string
	cut  time.Duration // duration of a cut of the link before the phase
	goal int           // maximum number of requests, without renewals of the Lease
	do   func()

	least, most int           // number of requests of the rounds
	cpu         time.Duration // of the round with the lowest CPU time
	requests    cluster.Requests
}

// TestControlPlane counts the requests of a node and the CPU time of the API server and etcd: for the start and the end of 30 pods, for a
// restart of an agent with 30 pods, and for the return of a link. Each phase is measured twice. The difference between the two rounds is
// the noise. The test fails if the better round misses a goal by more than the noise.
//
// During a short cut, nothing changes. After a longer cut, the control plane has set all pods to not ready, so the node sends a status of
// each pod. After 48 minutes, the node also renews the token of each pod. The variable ISLET_BENCH_OUTAGE sets the length of this cut.
func TestControlPlane(t *testing.T) {
	idle := max(figures.IdleTime(t), 5*time.Minute) // nodeStatusReportFrequency is 5 min
	c := cluster.Start(t)
	n := c.Node(t, "")
	n.Join()
	b := &bench{c: c, n: n, pods: c.Admin().CoreV1().Pods(c.Namespace(t)), stays: true}
	const count = 30
	var names []string
	for i := range count {
		names = append(names, fmt.Sprintf("p%02d", i))
	}
	long, returned := outage(t), count+20
	if long > 45*time.Minute {
		returned += count
	}
	phases := []*phase{
		{name: "they start", goal: 5*count + 10, do: func() { b.create(t, names) }},
		{name: "the agent is killed and starts", goal: 20, do: func() { n.Kill(); n.Start() }},
		{name: "the link returns after 20s", cut: 20 * time.Second, goal: 20, do: func() { n.Restore(t) }},
		{name: fmt.Sprintf("the link returns after %v", long), cut: long, goal: returned, do: func() { n.Restore(t) }},
		{name: "they end", goal: 3*count + 4, do: func() { b.remove(t, names) }},
	}
	cluster.Pass(quiet)
	for round := range 2 {
		for _, p := range phases {
			if p.cut > 0 {
				n.Cut(t)
				cluster.Pass(p.cut)
			}
			b.measure(t, p)
			if round == 1 && p == phases[0] {
				b.idle(t, count, idle)
			}
		}
	}
	for _, p := range phases {
		what := fmt.Sprintf("%d pods, %s: ", count, p.name)
		b.table.Add(what+"requests", fmt.Sprintf("%d to %d", p.least, p.most), fmt.Sprint(p.goal), p.requests.String())
		b.table.Add(what+"CPU of API server and etcd", seconds(p.cpu), "", fmt.Sprintf("until %v later", quiet))
		if p.least-p.goal > p.most-p.least {
			t.Errorf("%s%d requests, the goal is %d: %s", what, p.least, p.goal, p.requests)
		}
	}
	fmt.Print("\n", &b.table)
}

// outage returns the duration of the longer cut.
func outage(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("ISLET_BENCH_OUTAGE")
	if text == "" {
		return 90 * time.Second // the control plane waits 50 s for a Lease
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("ISLET_BENCH_OUTAGE: %v", err)
	}
	return d
}

// measure measures a phase until the node is quiet again.
func (b *bench) measure(t *testing.T, p *phase) {
	t.Helper()
	began, cpu := time.Now(), b.c.CPU(t)
	p.do()
	cluster.Pass(quiet)
	cpu = b.c.CPU(t) - cpu
	got := b.c.Requests(t, b.n.Name, began, time.Now())
	n := got.Total()
	t.Logf("%s: %d requests, %v of CPU: %v", p.name, n, cpu, got)
	if p.requests == nil {
		p.least, p.most, p.cpu = n, n, cpu
	}
	p.least, p.most, p.cpu, p.requests = min(p.least, n), max(p.most, n), min(p.cpu, cpu), got
}

// idle measures a node with pods in which nothing happens.
func (b *bench) idle(t *testing.T, count int, span time.Duration) {
	t.Helper()
	began, cpu := time.Now(), b.c.CPU(t)
	cluster.Pass(span)
	cpu = b.c.CPU(t) - cpu
	got := b.c.Requests(t, b.n.Name, began, time.Now())
	t.Logf("idle for %v: %v of CPU: %v", span, cpu, got)
	what := fmt.Sprintf("%d pods, idle for an hour: ", count)
	b.table.Add(what+"requests", fmt.Sprintf("%.0f", float64(got.Total())*time.Hour.Seconds()/span.Seconds()), "",
		fmt.Sprintf("in %v: %v", span, got))
	b.table.Add(what+"CPU of API server and etcd", seconds(time.Duration(float64(cpu)*time.Hour.Seconds()/span.Seconds())), "",
		"with their own work")
}
