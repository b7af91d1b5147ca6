package devicemanager

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
)

// TestCapacityGrace checks that the devices of a disconnected provider stay in the Node's capacity for capacityGrace, which begins again at
// each disconnection. Only one timer runs, however often the provider disconnects, and none while it is connected.
func TestCapacityGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		listed := func() bool {
			synctest.Wait()
			c, _ := w.Resources()
			q := c[v1.ResourceName(thing)]
			return q.Value() > 0
		}
		l := w.connect(&shop{}, "a")
		var first *time.Timer
		for i := range 100 {
			l.Close()
			timer := w.resources[thing].expiry
			if i == 0 {
				first = timer
			}
			time.Sleep(capacityGrace / 2)
			if timer != first || !listed() {
				t.Fatalf("disconnection %d: the timer %v is not the first one, or nothing is listed: %v", i, timer, listed())
			}
			l = w.connect(&shop{}, "a")
			if timer.Stop() {
				t.Fatalf("connection %d: the timer goes on", i)
			}
		}
		time.Sleep(2 * capacityGrace)
		if !listed() {
			t.Error("a connected provider is not listed")
		}
		l.Close()
		time.Sleep(capacityGrace - time.Second)
		if !listed() {
			t.Error("the devices are gone too early")
		}
		time.Sleep(2 * time.Second)
		if listed() {
			t.Error("the devices are still listed")
		}
		w.connect(&shop{}, "a")
		if !listed() {
			t.Error("the next connection is not listed")
		}
	})
}
