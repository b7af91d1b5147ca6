package observe

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
)

// TestEventsDuringOwnCalls checks the events that arrive while the agent itself has a call in progress for the pod. The read after the call
// also covers the events that arrived before the read. All other events cause a read: after eventDelay if the call takes longer, at the end
// of the call if the read was earlier than the event or has failed, and at once if there is no call.
func TestEventsDuringOwnCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := eventRuntime{aTable(), make(chan error)}
		o, changes := run(t, r)
		<-changes
		time.Sleep(2 * activeAfter)
		send := func() {
			r.events <- nil
			synctest.Wait()
		}
		restarts := int64(0)
		happen := func() { // another program restarts the container, and the runtime sends an event
			restarts++
			r.change(func() {
				state := api.ContainerState_CONTAINER_EXITED
				if restarts%2 == 0 {
					state = api.ContainerState_CONTAINER_RUNNING
				}
				r.containers[0].State = state
			})
			send()
		}
		sees := func(what string, want bool) {
			t.Helper()
			synctest.Wait()
			exited := o.Pod("u1").Containers[0].State == plan.Exited
			if current := exited == (restarts%2 == 1); current != want {
				t.Errorf("%s: the view is current: %v, want %v", what, current, want)
			}
		}
		reported := func(what string, want int) {
			t.Helper()
			synctest.Wait()
			if got := len(changes); got != want {
				t.Errorf("%s: %d changes were reported, want %d", what, got, want)
			}
			for len(changes) > 0 {
				<-changes
			}
		}

		end := o.Begin("u1")
		happen()
		sees("during the call", false)
		if err := o.Refresh(t.Context(), "u1"); err != nil {
			t.Fatal(err)
		}
		sees("after the call", true)
		end()
		before := r.reads()
		time.Sleep(time.Minute)
		reported("own change", 0)
		if got := r.reads() - before; got != 0 {
			t.Errorf("%d reads after the call", got)
		}

		end = o.Begin("u1")
		happen()
		time.Sleep(eventDelay)
		sees("a long call", true)
		reported("a long call", 1)
		end()

		end, other := o.Begin("u1"), o.Begin("u1")
		if err := o.Refresh(t.Context(), "u1"); err != nil {
			t.Fatal(err)
		}
		happen()
		end()
		sees("another call is in progress", false)
		other()
		sees("an event after the read", true)
		reported("an event after the read", 1)

		end = o.Begin("u1")
		happen()
		r.change(func() { r.down = errors.New("down") })
		if err := o.Refresh(t.Context(), "u1"); err == nil {
			t.Error("no error of the runtime")
		}
		r.change(func() { r.down = nil })
		end()
		sees("the read failed", true)
		reported("the read failed", 1)

		happen()
		sees("no call", true)
		reported("no call", 1)
		if len(o.own) > 0 {
			t.Errorf("calls left: %v", o.own)
		}
	})
}
