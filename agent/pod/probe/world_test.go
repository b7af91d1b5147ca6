package probe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/agent/pod/probe/call"
	"github.com/islet-edge/islet/internal/eventtest"
	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/internal/podtest"
)

// The port of a call identifies the kind of the probe.
const (
	livePort = iota + 1
	readyPort
	startPort
)

var errRefused = errors.New("connection refused")

// A world is a node with one pod, in a bubble.
type world struct {
	t      *testing.T
	probes *Probes
	file   string
	hold   bool // the next agent is on trial
	stop   context.CancelFunc
	done   chan error
	begin  time.Time

	mu        sync.Mutex
	in        plan.Input
	addresses []string // of the node
	status    v1.PodStatus
	answers   map[int]error     // the key is the port
	hang      bool              // calls wait until their context ends
	calls     []string          // such as "1.5s ready c1 10.0.0.7"
	results   map[string][]bool // the key consists of container and port; each success is true
	events    []string
	changes   int
}

// bubble runs a test with a pod whose container has just started.
func bubble(t *testing.T, pod *v1.Pod, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, addresses: []string{"192.168.0.2"}, file: filepath.Join(t.TempDir(), "probes"), begin: time.Now(), answers: map[int]error{}, results: map[string][]bool{}}
		w.in = plan.Input{UID: pod.UID, Want: pod, Admitted: true, InFlight: map[string]plan.RunningAction{}}
		w.in.Observed = plan.Observed{Sandboxes: []plan.Sandbox{{ID: "s", Ready: true, IPs: []string{"10.0.0.7", "fd00::7"}}}, Containers: []plan.Container{running("c1", 0)}}
		w.start()
		test(w)
		w.end()
	})
}

func running(id string, attempt uint32) plan.Container {
	return plan.Container{ID: id, Name: "c", SandboxID: "s", Attempt: attempt, State: plan.Running, StartedAt: time.Now().Round(0)}
}

// start starts an agent.
func (w *world) start() {
	w.probes = New(Config{
		Caller: w, Events: eventtest.Sink(w.record), Hold: w.hold, File: w.file, Log: slog.New(slog.DiscardHandler), Node: func() []string { w.mu.Lock(); defer w.mu.Unlock(); return w.addresses },
		Input: func(types.UID) plan.Input {
			w.mu.Lock()
			in := w.in
			w.mu.Unlock()
			in.Health = w.probes.Health(in.Want, in.Observed)
			return in
		},
		Changed: func(types.UID) { w.mu.Lock(); w.changes++; w.mu.Unlock(); w.show() },
	})
	if w.in.Want != nil {
		w.probes.Restore(w.in.Want, &w.status)
	}
	var ctx context.Context
	ctx, w.stop = context.WithCancel(context.Background())
	w.done = make(chan error, 1)
	probes, done := w.probes, w.done
	go func() { done <- probes.Run(ctx) }()
	synctest.Wait()
	w.probes.Poke("u")
	w.show()
	synctest.Wait()
}

func (w *world) end() {
	w.stop()
	<-w.done
}

// This helper sets the container statuses of the pod, as the agent does.
func (w *world) show() {
	w.mu.Lock()
	in := w.in
	w.mu.Unlock()
	if in.Want == nil {
		return
	}
	health := w.probes.Health(in.Want, in.Observed)
	var st v1.PodStatus
	for _, c := range in.Observed.Containers {
		h, probed := health[c.ID]
		started := c.State == plan.Running && (!probed || h.Started)
		st.ContainerStatuses = append(st.ContainerStatuses, v1.ContainerStatus{Name: c.Name, ContainerID: "containerd://" + c.ID, Started: &started, Ready: started && (!probed || h.Ready)})
	}
	w.mu.Lock()
	w.status = st
	w.mu.Unlock()
}

// This helper modifies the desired pod or its observed state.
func (w *world) change(f func(in *plan.Input)) {
	w.mu.Lock()
	w.in.Observed.Containers = slices.Clone(w.in.Observed.Containers)
	w.in.Observed.Sandboxes = slices.Clone(w.in.Observed.Sandboxes)
	f(&w.in)
	w.mu.Unlock()
	w.probes.Poke("u")
	w.show()
	synctest.Wait()
}

// answer sets the result of all later calls to a port.
func (w *world) answer(port int, err error) {
	w.mu.Lock()
	w.answers[port] = err
	w.mu.Unlock()
}

// advanceTime lets time pass.
func (w *world) advanceTime(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// health returns the state of the running container.
func (w *world) health() string {
	var out []string
	for _, c := range w.in.Observed.Containers {
		h, ok := w.probes.Health(w.in.Want, w.in.Observed)[c.ID]
		switch {
		case !ok:
			out = append(out, "none")
		case h.Unhealthy:
			out = append(out, "unhealthy")
		case h.Ready:
			out = append(out, "ready")
		case h.Started:
			out = append(out, "started")
		default:
			out = append(out, "starts")
		}
	}
	return strings.Join(out, " ")
}

func (w *world) checkHealth(health string) {
	w.t.Helper()
	if got := w.health(); got != health {
		w.t.Errorf("after %v: %s, want %s", time.Since(w.begin), got, health)
	}
}

// This helper checks the calls since the previous check.
func (w *world) asked(want ...string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.calls, want) {
		w.t.Errorf("calls\n%s\nwant\n%s", strings.Join(w.calls, "\n"), strings.Join(want, "\n"))
	}
	w.calls = nil
}

// This helper deletes the recorded calls, events and changes. It returns their numbers.
func (w *world) forget() (calls, events, changes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	calls, events, changes = len(w.calls), len(w.events), w.changes
	w.calls, w.events, w.changes = nil, nil, 0
	return calls, events, changes
}

func (w *world) checkEvents(want ...string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.events, want) {
		w.t.Errorf("events\n%s\nwant\n%s", strings.Join(w.events, "\n"), strings.Join(want, "\n"))
	}
	w.events = nil
}

// call records a call and returns the result that is set for the port.
func (w *world) call(ctx context.Context, what string, port int, timeout time.Duration) error {
	w.mu.Lock()
	w.calls = append(w.calls, fmt.Sprintf("%v %s", time.Since(w.begin), what))
	hang, err := w.hang, w.answers[port]
	w.mu.Unlock()
	if !hang {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	<-ctx.Done()
	return ctx.Err()
}

// Connect implements Caller. The port identifies the kind of the probe.
func (w *world) Connect(ctx context.Context, t call.Target, a *v1.TCPSocketAction, timeout time.Duration) (err error) {
	port := a.Port.IntValue()
	defer func() {
		if ctx.Err() == nil { // the result of a cancelled call is ignored
			w.mu.Lock()
			defer w.mu.Unlock()
			key := fmt.Sprint(t.ID, port)
			w.results[key] = append(w.results[key], err == nil)
		}
	}()
	return w.call(ctx, map[int]string{livePort: "live", readyPort: "ready", startPort: "start"}[port]+" "+t.ID+" "+t.IP, port, timeout)
}

func (w *world) Exec(ctx context.Context, id string, command []string, timeout time.Duration) ([]byte, error) {
	if len(command) == 0 {
		panic("no command")
	}
	err := w.call(ctx, "exec "+id+" "+strings.Join(command, " "), 0, timeout)
	return []byte("output"), err
}

func (w *world) Get(ctx context.Context, t call.Target, a *v1.HTTPGetAction, purpose string, timeout time.Duration) (call.Response, error) {
	err := w.call(ctx, "get "+purpose+" "+a.Path, a.Port.IntValue(), timeout)
	if code, ok := errors.AsType[status](err); ok {
		return call.Response{Code: int(code), Body: "the body"}, nil
	}
	return call.Response{Code: 200}, err
}

func (w *world) Check(ctx context.Context, t call.Target, a *v1.GRPCAction, timeout time.Duration) error {
	return w.call(ctx, "check "+t.IP, int(a.Port), timeout)
}

// A status is an error that contains the response code of an HTTP server.
type status int

func (status) Error() string { return "an HTTP status" }

// record stores an event as a line.
func (w *world) record(e eventtest.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, fmt.Sprintf("%s/%s %s %s: %s", e.Pod.Name, e.Container, e.Type, e.Reason, e.Message))
}

// pod returns a pod with one container. The options modify the container.
func pod(options ...func(*v1.Container)) *v1.Pod {
	p := podtest.New("web", podtest.UID("u"), podtest.RestartPolicy(v1.RestartPolicyAlways))
	for _, o := range options {
		o(&p.Spec.Containers[0])
	}
	return p
}

// tcp returns a TCP probe with the API's default values.
func tcp(port int, options ...func(*v1.Probe)) *v1.Probe {
	p := &v1.Probe{TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3}
	p.TCPSocket = &v1.TCPSocketAction{Port: intstr.FromInt(port)}
	for _, o := range options {
		o(p)
	}
	return p
}

func withLiveness(o ...func(*v1.Probe)) func(*v1.Container) {
	return func(c *v1.Container) { c.LivenessProbe = tcp(livePort, o...) }
}

func withReadiness(o ...func(*v1.Probe)) func(*v1.Container) {
	return func(c *v1.Container) { c.ReadinessProbe = tcp(readyPort, o...) }
}

func start(o ...func(*v1.Probe)) func(*v1.Container) {
	return func(c *v1.Container) { c.StartupProbe = tcp(startPort, o...) }
}

func after(n int32) func(*v1.Probe)      { return func(p *v1.Probe) { p.InitialDelaySeconds = n } }
func withPeriod(n int32) func(*v1.Probe) { return func(p *v1.Probe) { p.PeriodSeconds = n } }
func successes(n int32) func(*v1.Probe)  { return func(p *v1.Probe) { p.SuccessThreshold = n } }
func failures(n int32) func(*v1.Probe)   { return func(p *v1.Probe) { p.FailureThreshold = n } }

// asSidecar makes the container a sidecar.
func asSidecar(p *v1.Pod) *v1.Pod {
	always := v1.ContainerRestartPolicyAlways
	p.Spec.InitContainers = []v1.Container{p.Spec.Containers[0]}
	p.Spec.InitContainers[0].RestartPolicy = &always
	p.Spec.Containers = []v1.Container{{Name: "main"}}
	if !podspec.IsSidecar(&p.Spec.InitContainers[0]) {
		panic("no sidecar")
	}
	return p
}
