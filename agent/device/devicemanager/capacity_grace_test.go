package devicemanager

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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

// TestUnreportedZero checks that a resource without a provider has the capacity zero after each restart, until the API server has this
// capacity. Without a link this can take longer than capacityGrace. After that, other programs may advertise the resource.
func TestUnreportedZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		known := func() bool {
			c, _ := w.Resources()
			q, known := c[v1.ResourceName(thing)]
			if !q.IsZero() {
				t.Errorf("capacity %v", c)
			}
			return known
		}
		l := w.connect(&shop{}, "a")
		four := v1.ResourceList{thing: resource.MustParse("4")}
		w.Reported(v1.ResourceList{}) // no reason to forget a resource that has a provider
		l.Close()
		time.Sleep(capacityGrace + time.Second)
		synctest.Wait()
		w.Reported(four)
		for range 2 {
			w.start()
			if !known() {
				t.Fatal("the resource is forgotten although the API server has a capacity")
			}
			w.Reported(v1.ResourceList{}) // from before the restart: the provider may come back
		}
		time.Sleep(capacityGrace + time.Second)
		synctest.Wait()
		w.Reported(v1.ResourceList{thing: resource.Quantity{}})
		w.start()
		if known() {
			t.Error("the resource is not forgotten")
		}
	})
}
