package probe

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/islet-edge/islet/agent/pod/plan"
)

// FuzzProbes applies the events in data to a container. The events are results of probes, hanging calls, and restarts of the container or
// the agent. A verdict must follow from the container's results, and the number of calls is limited.
func FuzzProbes(f *testing.F) {
	f.Add([]byte{0, 0, 0, 2, 32, 64, 3, 0, 4, 0})
	f.Add([]byte{7, 1, 10, 224, 224, 4, 224, 2, 0, 3, 18, 224, 224})
	f.Add([]byte{27, 0, 5, 224, 5, 0, 6, 224, 6, 0, 7, 224, 7, 224, 2, 10, 18, 224, 3, 224})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < 2 {
			return
		}
		fail, succeed, period := 1+int32(data[0]%4), 1+int32(data[0]>>2%3), 1+int32(data[0]>>4%5)
		bubble(t, pod(withLiveness(withPeriod(period), failures(fail)), withReadiness(withPeriod(period), failures(fail), successes(succeed)),
			start(withPeriod(period), failures(fail))), func(w *world) {
			made := 1
			for _, b := range data[1:min(len(data), 200)] {
				arg, took := int(b>>3), time.Duration(0)
				w.forget()
				switch b & 7 {
				case 0, 1:
					took = time.Duration(1+arg) * time.Second
					w.advanceTime(took)
				case 2:
					port := livePort + arg%3
					w.answer(port, map[bool]error{true: errRefused}[w.answers[port] == nil])
				case 3:
					made++
					w.change(func(in *plan.Input) { in.Observed.Containers[0] = running(fmt.Sprint("c", made), uint32(made)) })
				case 4:
					w.end()
					w.start()
				case 5:
					w.mu.Lock()
					w.hang = !w.hang
					w.mu.Unlock()
				case 6:
					w.change(func(in *plan.Input) { in.Observed.Sandboxes[0].Ready = !in.Observed.Sandboxes[0].Ready })
				case 7:
					w.change(func(in *plan.Input) {
						in.InFlight = map[string]plan.RunningAction{}
						if arg%2 == 0 {
							in.InFlight["c"] = plan.RunningAction{Action: plan.Action{Op: plan.StopContainer}}
						}
					})
				}
				w.checkInvariants(int(fail), int(succeed), took/time.Second/time.Duration(period))
			}
		})
	})
}

// checkInvariants checks the invariants. The parameter periods is the number of periods since the last call of forget.
func (w *world) checkInvariants(fail, succeed int, periods time.Duration) {
	w.t.Helper()
	id := w.in.Observed.Containers[0].ID
	h := w.probes.Health(w.in.Want, w.in.Observed)[id]
	w.mu.Lock()
	defer w.mu.Unlock()
	answers := func(port int) []bool { return w.results[fmt.Sprint(id, port)] }
	lastFailed := func(port int) bool {
		all := answers(port)
		return len(all) >= fail && !slices.Contains(all[len(all)-fail:], true)
	}
	was := func(port, n int) bool { // was reports whether the probe succeeded n times in a row
		run := 0
		for _, ok := range answers(port) {
			run++
			if !ok {
				run = 0
			}
			if run >= n {
				return true
			}
		}
		return false
	}
	switch {
	case h.Ready && !was(readyPort, succeed):
		w.t.Fatalf("%s is ready: %v", id, answers(readyPort))
	case h.Started && !was(startPort, 1):
		w.t.Fatalf("%s has started: %v", id, answers(startPort))
	case h.Unhealthy && !lastFailed(livePort) && !lastFailed(startPort):
		w.t.Fatalf("%s is unhealthy: %v, %v", id, answers(livePort), answers(startPort))
	case h.Ready && !h.Started:
		w.t.Fatalf("%s is ready, but has not started", id)
	case len(w.calls) > 3*(int(periods)+10):
		w.t.Fatalf("%d calls in %d periods", len(w.calls), periods)
	}
}
