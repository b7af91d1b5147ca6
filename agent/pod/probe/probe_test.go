package probe

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/agent/pod/probe/call"
)

// TestReadiness checks that a container is not ready before its readiness probe has succeeded. The probe runs at short intervals at first,
// and then once a period. The worker is woken only when the readiness changes.
func TestReadiness(t *testing.T) {
	bubble(t, pod(withReadiness()), func(w *world) {
		w.answer(readyPort, errRefused)
		w.checkHealth("started")
		w.advanceTime(2 * time.Second)
		w.asked("10ms ready c1 10.0.0.7", "30ms ready c1 10.0.0.7", "70ms ready c1 10.0.0.7", "150ms ready c1 10.0.0.7",
			"310ms ready c1 10.0.0.7", "630ms ready c1 10.0.0.7", "1.27s ready c1 10.0.0.7")
		w.checkEvents()
		w.advanceTime(9 * time.Second)
		w.asked("2.55s ready c1 10.0.0.7", "5.11s ready c1 10.0.0.7", "10s ready c1 10.0.0.7")
		w.checkEvents("web/c Warning Unhealthy: Readiness probe failed: connection refused")
		w.checkHealth("started")
		w.answer(readyPort, nil)
		w.advanceTime(10 * time.Second)
		w.asked("20s ready c1 10.0.0.7")
		w.checkHealth("ready")
		if _, _, changes := w.forget(); changes != 1 {
			t.Errorf("%d changes", changes)
		}
		w.answer(readyPort, errRefused)
		w.advanceTime(20 * time.Second)
		w.checkHealth("ready") // two failures do not reach the threshold of three
		w.answer(readyPort, nil)
		w.advanceTime(10 * time.Second)
		w.answer(readyPort, errRefused)
		w.advanceTime(20 * time.Second)
		w.checkHealth("ready")
		w.advanceTime(10 * time.Second)
		w.checkHealth("started")
		if calls, events, changes := w.forget(); calls != 6 || events != 5 || changes != 1 {
			t.Errorf("%d calls, %d events, %d changes", calls, events, changes)
		}
	})
}

// TestReadyEarly checks that a success of the first probe counts. The periods begin with this probe.
func TestReadyEarly(t *testing.T) {
	bubble(t, pod(withReadiness(successes(2))), func(w *world) {
		w.advanceTime(time.Second)
		w.checkHealth("started")
		w.advanceTime(10 * time.Second)
		w.checkHealth("ready")
		w.asked("10ms ready c1 10.0.0.7", "10.1s ready c1 10.0.0.7")
	})
}

// TestLiveness checks that the first liveness probe runs after one period. The container is unhealthy after FailureThreshold consecutive
// failures. The next container has its own count.
func TestLiveness(t *testing.T) {
	bubble(t, pod(withLiveness(withPeriod(5))), func(w *world) {
		w.answer(livePort, errRefused)
		w.checkHealth("ready")
		w.advanceTime(14 * time.Second)
		w.asked("5s live c1 10.0.0.7", "10s live c1 10.0.0.7")
		w.checkHealth("ready")
		w.advanceTime(time.Second)
		w.checkHealth("unhealthy")
		w.forget()
		w.advanceTime(time.Minute)
		w.asked() // no probe runs until the next container starts
		w.change(func(in *plan.Input) { in.Observed.Containers[0] = running("c2", 1) })
		w.checkHealth("ready")
		w.advanceTime(14 * time.Second)
		w.checkHealth("ready")
		w.answer(livePort, nil)
		w.advanceTime(time.Minute)
		w.checkHealth("ready")
		if _, events, changes := w.forget(); events != 2 || changes != 0 {
			t.Errorf("%d events, %d changes", events, changes)
		}
	})
}

// TestStartup checks that no other probe runs before the startup probe has succeeded. The readiness probe runs immediately afterwards.
func TestStartup(t *testing.T) {
	bubble(t, pod(withLiveness(), withReadiness(), start(withPeriod(2))), func(w *world) {
		w.answer(startPort, errRefused)
		w.advanceTime(3 * time.Second)
		w.checkHealth("starts")
		w.answer(startPort, nil)
		w.forget()
		w.advanceTime(2 * time.Second)
		w.checkHealth("ready")
		w.asked("4s start c1 10.0.0.7", "4.01s ready c1 10.0.0.7")
		w.advanceTime(10 * time.Second)
		w.asked("14s live c1 10.0.0.7", "14.1s ready c1 10.0.0.7")
		w.answer(startPort, errRefused)
		w.advanceTime(time.Minute)
		w.checkHealth("ready") // the startup probe is not repeated
	})
	bubble(t, pod(withLiveness(), withReadiness(), start(withPeriod(2), failures(4))), func(w *world) {
		w.answer(startPort, errRefused)
		w.advanceTime(7 * time.Second)
		w.checkHealth("starts")
		w.advanceTime(time.Second)
		w.checkHealth("unhealthy")
		w.forget()
		w.advanceTime(time.Minute)
		w.asked()
	})
}

// TestInitContainers checks that a sidecar is probed like a main container. Other init containers are not probed.
func TestInitContainers(t *testing.T) {
	bubble(t, asSidecar(pod(start())), func(w *world) {
		w.checkHealth("starts")
		w.advanceTime(time.Second)
		w.checkHealth("ready")
		w.asked("10ms start c1 10.0.0.7")
	})
	plain := asSidecar(pod(withReadiness()))
	plain.Spec.InitContainers[0].RestartPolicy = nil
	bubble(t, plain, func(w *world) {
		w.advanceTime(time.Minute)
		w.checkHealth("none")
		w.asked()
	})
}

func TestInitialDelay(t *testing.T) {
	bubble(t, pod(withLiveness(after(15), withPeriod(5)), withReadiness(after(3), withPeriod(6))), func(w *world) {
		w.answer(readyPort, errRefused)
		w.advanceTime(7 * time.Second)
		w.asked("3.01s ready c1 10.0.0.7", "3.03s ready c1 10.0.0.7", "3.07s ready c1 10.0.0.7", "3.15s ready c1 10.0.0.7",
			"3.31s ready c1 10.0.0.7", "3.63s ready c1 10.0.0.7", "4.27s ready c1 10.0.0.7", "5.55s ready c1 10.0.0.7", "6s ready c1 10.0.0.7")
		w.answer(readyPort, nil)
		w.advanceTime(9 * time.Second)
		w.asked("12s ready c1 10.0.0.7", "15s live c1 10.0.0.7")
	})
	for name, jump := range map[string]time.Duration{"future": time.Hour, "past": -time.Hour} { // the clock is set by this duration
		p := pod(withReadiness(after(30)))
		bubble(t, p, func(w *world) {
			w.change(func(in *plan.Input) {
				in.Observed.Containers[0] = running("c2", 1)
				in.Observed.Containers[0].StartedAt = time.Now().Add(jump)
			})
			w.advanceTime(31 * time.Second)
			if calls, _, _ := w.forget(); calls == 0 {
				t.Errorf("%s: no probe ran", name)
			}
		})
	}
}

// TestRestartOfTheAgent checks that a container keeps its readiness after a restart of the agent until enough results contradict it. The
// first probes are spread over time.
func TestRestartOfTheAgent(t *testing.T) {
	bubble(t, pod(withLiveness(), withReadiness(), start()), func(w *world) {
		w.advanceTime(30 * time.Second)
		w.checkHealth("ready")
		w.end()
		w.answer(readyPort, errRefused)
		w.answer(startPort, errRefused)
		w.forget()
		w.start()
		w.checkHealth("ready")
		w.advanceTime(10 * time.Second)
		w.checkHealth("ready")
		w.mu.Lock()
		for _, c := range w.calls {
			if strings.Contains(c, "start") || strings.HasPrefix(c, "30s") {
				t.Errorf("unexpected call %s", c)
			}
		}
		w.mu.Unlock()
		w.advanceTime(20 * time.Second)
		w.checkHealth("started") // the probe has failed three times
		w.end()
		w.forget()
		w.start()
		w.checkHealth("started")
		w.answer(readyPort, nil)
		w.advanceTime(time.Second)
		w.checkHealth("ready")
	})
	// The container started while no agent was running, so its readiness is unknown.
	bubble(t, pod(withReadiness()), func(w *world) {
		w.advanceTime(time.Second)
		w.checkHealth("ready")
		w.end()
		w.in.Observed.Containers[0] = running("c2", 1)
		w.advanceTime(time.Minute)
		w.answer(readyPort, errRefused)
		w.start()
		w.checkHealth("started")
	})
}

// TestTrial checks that an agent on trial probes each ready container within a second. It reports the pod as confirmed only after a
// success. It does not stop containers, and does not store its results for the next agent.
func TestTrial(t *testing.T) {
	p := pod(withLiveness(withPeriod(60), failures(1)), withReadiness(withPeriod(60)))
	confirmed := func(w *world, want bool) {
		t.Helper()
		if got := w.probes.ReadyConfirmed(p); got != want {
			t.Errorf("after %v: confirmed is %v", time.Since(w.begin), got)
		}
	}
	bubble(t, p, func(w *world) {
		w.advanceTime(time.Minute)
		confirmed(w, true) // this agent is not on trial
		w.end()
		w.hold = true
		w.start()
		confirmed(w, false)
		w.answer(readyPort, errRefused)
		w.answer(livePort, errRefused)
		w.forget()
		w.advanceTime(2 * time.Second)
		w.checkHealth("ready") // three failures are needed before the container is unready
		confirmed(w, false)
		if calls, _, _ := w.forget(); calls != 2 {
			t.Errorf("%d calls", calls)
		}
		w.end()
		w.answer(readyPort, nil)
		w.start()
		w.advanceTime(2 * time.Second)
		confirmed(w, false) // the liveness probe fails
		w.checkHealth("ready")
		w.end()
		w.answer(livePort, nil)
		w.start()
		w.advanceTime(2 * time.Second)
		confirmed(w, true)
		w.end()
		w.hold = false
		w.start()
		w.checkHealth("ready")
	})
	// A container needs no successful liveness probe before its initial delay has passed.
	p = pod(withLiveness(after(600)))
	bubble(t, p, func(w *world) {
		w.end()
		w.hold = true
		w.start()
		w.advanceTime(2 * time.Second)
		confirmed(w, true)
	})
}

// TestTermination checks that only the readiness probe runs while a pod terminates. The pod's state is deleted afterwards.
func TestTermination(t *testing.T) {
	for name, ends := range map[string]func(*plan.Input){
		"deleted": func(in *plan.Input) { in.Deleting = true },
		"evicted": func(in *plan.Input) { in.End = &plan.End{Reason: "Evicted"} },
	} {
		bubble(t, pod(withLiveness(withPeriod(1), failures(1)), withReadiness(withPeriod(1), failures(1))), func(w *world) {
			w.advanceTime(5500 * time.Millisecond)
			w.change(ends)
			w.forget()
			w.answer(livePort, errRefused)
			w.answer(readyPort, errRefused)
			w.advanceTime(time.Second)
			w.checkHealth("started")
			w.asked("6.1s ready c1 10.0.0.7")
			if n := series(t, w.probes); n == 0 {
				t.Errorf("%s: no figures", name)
			}
			w.change(func(in *plan.Input) { in.Observed.Containers[0].State = plan.Exited })
			w.advanceTime(time.Minute)
			w.asked()
			if n := series(t, w.probes); n != 0 || len(w.probes.pods) != 0 || len(w.probes.queue) != 0 {
				t.Errorf("%s: %d series, %d pods and %d checks are left", name, n, len(w.probes.pods), len(w.probes.queue))
			}
		})
	}
	bubble(t, pod(withReadiness()), func(w *world) { // the pod is no longer desired
		w.change(func(in *plan.Input) { in.Want = nil })
		w.advanceTime(time.Minute)
		w.asked()
	})
}

// TestNotAsked checks that a container is not probed before it runs or while it is stopped. It is not probed either if its address may
// belong to another pod.
func TestNotAsked(t *testing.T) {
	bubble(t, pod(withLiveness(withPeriod(1)), withReadiness(withPeriod(1))), func(w *world) {
		w.change(func(in *plan.Input) {
			in.InFlight = map[string]plan.RunningAction{"c": {Action: plan.Action{Op: plan.StartContainer}}}
		})
		w.advanceTime(5 * time.Second)
		w.asked() // the container is being started
		w.change(func(in *plan.Input) { in.InFlight, in.Observed.Containers[0].PostStart = nil, true })
		w.advanceTime(5 * time.Second)
		w.asked() // the postStart hook is running
		for _, op := range []plan.Op{plan.PreStop, plan.StopContainer} {
			w.change(func(in *plan.Input) {
				in.Hooked, in.InFlight = map[string]bool{"c1": true}, map[string]plan.RunningAction{"c": {Action: plan.Action{Op: op}}}
			})
			w.advanceTime(time.Second)
		}
		w.asked("10.01s ready c1 10.0.0.7", "11.1s ready c1 10.0.0.7")
		w.change(func(in *plan.Input) { in.InFlight = nil })
		w.advanceTime(time.Second)
		w.asked("12.1s ready c1 10.0.0.7", "13s live c1 10.0.0.7")
		w.change(func(in *plan.Input) { in.InFlight = nil; in.Observed.Sandboxes[0].Ready = false })
		w.advanceTime(5 * time.Second)
		w.asked()
		w.change(func(in *plan.Input) { in.Observed.Sandboxes[0].Ready, in.Observed.Sandboxes[0].ID = true, "s2" })
		w.advanceTime(5 * time.Second)
		w.asked()
	})
	host := pod(withReadiness())
	host.Spec.HostNetwork = true
	bubble(t, host, func(w *world) {
		w.advanceTime(time.Second)
		w.asked("10ms ready c1 192.168.0.2")
		// The address of the node changes without a round of the pod's worker.
		for i, addresses := range [][]string{nil, {"192.168.0.3", "fd00::3"}} {
			w.mu.Lock()
			w.addresses = addresses
			w.mu.Unlock()
			w.advanceTime(10 * time.Second)
			w.asked([]string{"10.1s ready c1 127.0.0.1", "20.1s ready c1 192.168.0.3"}[i])
		}
	})
}

// TestSlowCalls checks that a hanging probe ends after its timeout. Until then, the probe does not run again, and missed periods are not
// repeated. The probe is cancelled when its container ends.
func TestSlowCalls(t *testing.T) {
	slow := func(p *v1.Probe) { p.TimeoutSeconds, p.FailureThreshold = 25, 1 }
	bubble(t, pod(withLiveness(slow)), func(w *world) {
		w.mu.Lock()
		w.hang = true
		w.mu.Unlock()
		w.advanceTime(34 * time.Second)
		w.asked("10s live c1 10.0.0.7")
		w.checkHealth("ready")
		w.advanceTime(time.Second)
		w.checkHealth("unhealthy")
		w.checkEvents("web/c Warning Unhealthy: Liveness probe failed: context deadline exceeded")
		w.change(func(in *plan.Input) { in.Observed.Containers[0] = running("c2", 1) })
		w.advanceTime(11 * time.Second)
		w.asked("45s live c2 10.0.0.7")
		w.change(func(in *plan.Input) { in.Observed.Containers[0] = running("c3", 2) })
		w.advanceTime(9 * time.Second)
		w.checkEvents() // there is no event about the cancelled probe
		w.checkHealth("ready")
	})
	bubble(t, pod(withReadiness(func(p *v1.Probe) { p.TimeoutSeconds, p.PeriodSeconds = 3, 2 })), func(w *world) {
		w.advanceTime(time.Second)
		w.mu.Lock()
		w.hang = true
		w.mu.Unlock()
		w.forget()
		w.advanceTime(12 * time.Second)
		w.asked("2.1s ready c1 10.0.0.7", "6.1s ready c1 10.0.0.7", "10.1s ready c1 10.0.0.7")
	})
}

// TestErrors checks that an invalid probe or a broken response does not change a container's health. The probe is repeated.
func TestErrors(t *testing.T) {
	bubble(t, pod(withLiveness(failures(1))), func(w *world) {
		w.answer(livePort, fmt.Errorf("invalid port number: 0: %w", call.ErrInvalid))
		w.advanceTime(10 * time.Second)
		w.checkHealth("ready")
		w.asked("10s live c1 10.0.0.7", "10s live c1 10.0.0.7", "10s live c1 10.0.0.7")
		w.checkEvents("web/c Warning Unhealthy: Liveness probe errored and resulted in unknown state: invalid port number: 0: invalid call")
		w.answer(livePort, fmt.Errorf("unexpected EOF: %w", call.ErrBroken))
		w.advanceTime(10 * time.Second)
		w.checkHealth("ready")
		w.checkEvents("web/c Warning Unhealthy: Liveness probe errored and resulted in failure state: unexpected EOF: broken answer")
	})
}

// TestAnswers checks that each result of each kind of probe leads to the same verdict and event as in a kubelet.
func TestAnswers(t *testing.T) {
	exec := func(p *v1.Probe) {
		p.ProbeHandler = v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"check", "$(MODE)", "$(SECRET)", "$(NONE)", "$$(MODE)"}}}
	}
	get := func(p *v1.Probe) { p.ProbeHandler = v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/healthz"}} }
	grpc := func(p *v1.Probe) { p.ProbeHandler = v1.ProbeHandler{GRPC: &v1.GRPCAction{}} }
	nothing := func(p *v1.Probe) { p.ProbeHandler = v1.ProbeHandler{} }
	panics := func(p *v1.Probe) { p.ProbeHandler = v1.ProbeHandler{Exec: &v1.ExecAction{}} }
	asked := map[string]string{"exec": "exec c1 check fast  $(NONE) $(MODE)", "get": "get probe /healthz", "grpc": "check 10.0.0.7"}
	for _, tt := range []struct {
		kind   string
		probe  func(*v1.Probe)
		answer error
		health string
		event  string
	}{
		{"exec", exec, nil, "ready", ""},
		{"exec", exec, &call.ExitError{Code: 1}, "unhealthy", "Unhealthy: Liveness probe failed: output"},
		{"exec", exec, fmt.Errorf("%w: \"check\" timed out after 1s", call.ErrTimedOut), "unhealthy", "Unhealthy: Liveness probe failed: command timed out: \"check\" timed out after 1s"},
		{"exec", exec, errors.New("no such file"), "ready", "Unhealthy: Liveness probe errored and resulted in unknown state: no such file"},
		{"get", get, nil, "ready", ""},
		{"get", get, status(204), "ready", ""},
		{"get", get, status(302), "ready", "ProbeWarning: Liveness probe warning: Probe terminated redirects, Response body: the body"},
		{"get", get, status(399), "ready", "ProbeWarning: Liveness probe warning: Probe terminated redirects, Response body: the body"},
		{"get", get, status(400), "unhealthy", "Unhealthy: Liveness probe failed: HTTP probe failed with statuscode: 400"},
		{"get", get, status(101), "unhealthy", "Unhealthy: Liveness probe failed: HTTP probe failed with statuscode: 101"},
		{"get", get, errors.New("EOF"), "unhealthy", "Unhealthy: Liveness probe failed: EOF"},
		{"get", get, errors.New(strings.Repeat("ä", 5000)), "unhealthy", "Unhealthy: Liveness probe failed: " + strings.Repeat("ä", (maxMessage-len("Liveness probe failed: "))/2)},
		{"get", get, errors.New("\xff\xfeno text"), "unhealthy", "Unhealthy: Liveness probe failed: no text"},
		{"grpc", grpc, nil, "ready", ""},
		{"grpc", grpc, errors.New("service unhealthy"), "unhealthy", "Unhealthy: Liveness probe failed: service unhealthy"},
		{"", nothing, nil, "ready", "Unhealthy: Liveness probe errored and resulted in unknown state: missing probe handler"},
		{"panic", panics, nil, "ready", "Unhealthy: Liveness probe errored and resulted in unknown state: it panicked: "},
	} {
		p := pod(withLiveness(tt.probe, failures(1)))
		p.Spec.Containers[0].Env = []v1.EnvVar{{Name: "MODE", Value: "slow"}, {Name: "MODE", Value: "fast"}, {Name: "SECRET", ValueFrom: &v1.EnvVarSource{}}}
		bubble(t, p, func(w *world) {
			w.answer(0, tt.answer)
			w.advanceTime(10 * time.Second)
			w.checkHealth(tt.health)
			if len(w.calls) > 0 && w.calls[0] != "10s "+asked[tt.kind] {
				t.Errorf("calls %q, want %q", w.calls[0], asked[tt.kind])
			}
			switch {
			case tt.event == "" && len(w.events) == 0:
			case len(w.events) != 1 || tt.kind != "panic" && w.events[0] != "web/c Warning "+tt.event ||
				!strings.HasPrefix(w.events[0], "web/c Warning "+tt.event):
				t.Errorf("%s, %v: events %q, want %q", tt.kind, tt.answer, w.events, tt.event)
			}
		})
	}
}

// series returns the number of series of the probe metrics.
func series(t *testing.T, p *Probes) (n int) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(p)
	all, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range all {
		n += len(family.Metric)
	}
	return n
}

// TestChangedProbe checks that a change of a probe takes effect while the probe's container runs.
func TestChangedProbe(t *testing.T) {
	bubble(t, pod(withReadiness()), func(w *world) {
		w.advanceTime(time.Second)
		w.checkHealth("ready")
		w.forget()
		w.change(func(in *plan.Input) { in.Want = pod(withReadiness(withPeriod(3)), withLiveness(withPeriod(2))) })
		w.advanceTime(12200 * time.Millisecond)
		w.asked("3s live c1 10.0.0.7", "5s live c1 10.0.0.7", "7s live c1 10.0.0.7", "9s live c1 10.0.0.7", "10.1s ready c1 10.0.0.7",
			"11s live c1 10.0.0.7", "13s live c1 10.0.0.7", "13.1s ready c1 10.0.0.7")
		w.change(func(in *plan.Input) { in.Want = pod() })
		w.advanceTime(time.Minute)
		w.asked()
		w.checkHealth("none")
	})
}

// TestEnd checks that the agent's end does not wait for running probes.
func TestEnd(t *testing.T) {
	bubble(t, pod(withReadiness()), func(w *world) {
		w.mu.Lock()
		w.hang = true
		w.mu.Unlock()
		w.advanceTime(60 * time.Millisecond)
		at := time.Now()
		w.end()
		if d := time.Since(at); d != 0 {
			t.Errorf("it took %v", d)
		}
		w.start()
		synctest.Wait()
	})
}
