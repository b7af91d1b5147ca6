package agent

import (
	"sync"
	"testing"

	"github.com/islet-edge/islet/agent/pod/life/worker"
)

// TestLate checks that a call to a part of the agent has no effect before this part exists. Another goroutine may set the part during the
// call. A part can be set only once.
func TestLate(t *testing.T) {
	var l laterParts
	l.pokePod("a")
	l.retryPods()
	l.pokeNode()
	l.nodeChanged()
	in := l.Input("a")
	if in.UID != "a" || in.Want != nil || l.startDelay() != 0 || l.flashExceeded() || l.isBarred("a") || len(l.listPods()) > 0 {
		t.Errorf("before anything is set: %+v", in)
	}
	workers := worker.New(worker.Config{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { l.pokePod("a") })
	}
	l.workers.set(workers)
	wg.Wait()
	l.pokePod("a")
	if l.workers.get() != workers || l.startDelay() == 0 {
		t.Error("the workers are not called")
	}
	defer func() {
		if recover() == nil || l.workers.get() != workers {
			t.Error("the cell can be set twice")
		}
	}()
	l.workers.set(worker.New(worker.Config{}))
}
