package outbox

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/edge/kube"
)

// TestOutageCostsNothing checks that no request is sent while the link is down, even if many pods change. When the link is up, the newest
// status of each pod is sent.
func TestOutageCostsNothing(t *testing.T) {
	in(t, func(w *world) {
		var down atomic.Bool
		var tries atomic.Int64
		w.end()
		w.before = func(context.Context) error {
			if down.Load() {
				tries.Add(1)
				return fmt.Errorf("%w: the cable is cut", kube.ErrNoLink)
			}
			return nil
		}
		w.start()
		var pods []*v1.Pod
		for n := range 10 {
			pods = append(pods, w.bind(fmt.Sprint("p", n)))
		}
		down.Store(true)
		for i := range 60 {
			for _, p := range pods {
				w.box.Put(p, &v1.PodStatus{Phase: v1.PodRunning, Message: fmt.Sprint(i)})
			}
			time.Sleep(time.Minute)
		}
		if n := tries.Load(); n > maxParallel {
			t.Errorf("%d tries while the link was down", n)
		}
		down.Store(false)
		w.retry <- struct{}{}
		time.Sleep(time.Second)
		for _, p := range pods {
			if got := w.Pod(p.Namespace, p.Name).Status.Message; got != "59" {
				t.Errorf("%s: the server has %q", p.Name, got)
			}
		}
	})
}
