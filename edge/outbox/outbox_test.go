package outbox

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
)

func TestStatusIsTheNodesToTell(t *testing.T) {
	in(t, func(w *world) {
		p := w.bind("a")
		w.box.Put(p, status(v1.PodRunning, ""))
		synctest.Wait()
		a := w.Pod("default", "a")
		a.Status.Message = "someone else's"
		a.Status.Conditions = append(a.Status.Conditions, v1.PodCondition{Type: "gate", Status: v1.ConditionTrue})
		w.Put(a)
		time.Sleep(10 * time.Second)
		if a = w.Pod("default", "a"); a.Status.Message != "" || len(a.Status.Conditions) != 3 {
			t.Errorf("%+v", a.Status)
		}
	})
}

// TestHas checks that Has reports whether the API server has a pod, also while the pod is being deleted. Before the first list, Has
// returns true.
func TestHas(t *testing.T) {
	in(t, func(w *world) {
		p := w.bind("a")
		if !w.box.Has(p.UID) || w.box.Has("other") {
			t.Error("the server has a, and no other pod")
		}
		w.box.Put(p, status(v1.PodRunning, "1"))
		w.Terminate(bound("a"), 30)
		synctest.Wait()
		if !w.box.Has(p.UID) {
			t.Error("the server still has a pod that is ending")
		}
		w.Remove(bound("a"))
		synctest.Wait()
		if w.box.Has(p.UID) {
			t.Error("the server has no more pod")
		}
		w.end()
		w.Disconnect()
		w.start()
		if !w.box.Has(p.UID) {
			t.Error("whether the server has the pod is not known yet")
		}
		w.Reconnect()
		time.Sleep(time.Minute)
		if w.box.Has(p.UID) {
			t.Error("the server has listed its pods without this one")
		}
	})
}
