package outbox

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/apitest"
)

// TestWarningsOfABusyPod checks that the normal events of a pod do not use up the budget for its warnings. Both budgets must be limited.
func TestWarningsOfABusyPod(t *testing.T) {
	recording(t, 50, 100, func(s *apitest.Server, e *Events, _ chan<- struct{}) {
		p := bound("busy")
		p.UID = "u"
		for i := range 100 {
			e.Pod(p, "c", v1.EventTypeNormal, fmt.Sprint("Reason", i), "Container started")
		}
		e.Pod(p, "c", v1.EventTypeWarning, "Unhealthy", "Readiness probe failed: no")
		e.Pod(p, "c", v1.EventTypeWarning, "BackOff", "Back-off restarting failed container c")
		time.Sleep(time.Minute)
		sent := map[string]int{}
		for _, ev := range s.Events() {
			sent[ev.Type]++
			sent[ev.Reason]++
		}
		if sent["Unhealthy"] != 1 || sent["BackOff"] != 1 || sent[v1.EventTypeNormal] != budgetBurst {
			t.Error(sent)
		}
		time.Sleep(budgetRefill)
		e.Pod(p, "c", v1.EventTypeNormal, "Later", "")
		time.Sleep(time.Minute)
		if n := len(s.Events()); n != budgetBurst+3 {
			t.Errorf("%d events", n)
		}
	})
}

// TestPendingEventOverBudget checks that a pending event is sent although its repetitions have used up the budget.
func TestPendingEventOverBudget(t *testing.T) {
	recording(t, 50, 100, func(s *apitest.Server, e *Events, retry chan<- struct{}) {
		p := bound("a")
		p.UID = "u"
		s.Disconnect()
		for range 2 * budgetBurst {
			e.Pod(p, "c", v1.EventTypeWarning, "Unhealthy", "Liveness probe failed: no")
			time.Sleep(time.Second)
		}
		s.Reconnect()
		retry <- struct{}{}
		time.Sleep(time.Minute)
		if all := s.Events(); len(all) != 1 || all[0].Count != 2*budgetBurst {
			t.Errorf("%+v", all)
		}
	})
}

// TestBudgetsAreBounded checks the number of budgets after events of many pods.
func TestBudgetsAreBounded(t *testing.T) {
	recording(t, 50, 100, func(_ *apitest.Server, e *Events, _ chan<- struct{}) {
		for i := range 5 * maxBudgets {
			p := bound("a")
			p.UID = types.UID(fmt.Sprint("u", i))
			e.Pod(p, "", v1.EventTypeNormal, "Started", "")
			e.Pod(p, "", v1.EventTypeWarning, "Unhealthy", "")
			if n := len(e.budgets); n > maxBudgets {
				t.Fatalf("%d budgets after %d pods", n, i)
			}
		}
	})
}
