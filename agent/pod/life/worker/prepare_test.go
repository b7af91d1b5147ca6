package worker

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/hook"
	"github.com/islet-edge/islet/internal/keys"
)

// preparer is a hook with a slow Prepare. If dead is set, Prepare hangs for pods of the API server.
type preparer struct {
	takes time.Duration
	dead  bool

	mu         sync.Mutex
	busy, most int // current and highest number of pods in Prepare
}

func (*preparer) Name() string { return "preparer" }

func (p *preparer) count(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy += n
	p.most = max(p.most, p.busy)
}

func (p *preparer) Prepare(ctx context.Context, pod *v1.Pod) error {
	p.count(1)
	defer p.count(-1)
	if p.dead && pod.Annotations[keys.ConfigSource] == "api" {
		<-ctx.Done()
		return ctx.Err()
	}
	time.Sleep(p.takes)
	return nil
}

func fromAPI(uid string) *v1.Pod {
	p := pod(uid, "")
	p.Annotations = map[string]string{keys.ConfigSource: "api"}
	return p
}

// crowd adds many pods of the API server at the same time. The parameter size is their number.
func (n *node) crowd(size int) {
	n.wishes.mu.Lock()
	for i := range size {
		uid := fmt.Sprint("p", i)
		n.wishes.pods[types.UID(uid)] = Wanted{Pod: fromAPI(uid)}
	}
	n.wishes.mu.Unlock()
	for i := range size {
		n.set.Poke(types.UID(fmt.Sprint("p", i)))
	}
}

// TestPreparationsAreBounded checks that the number of concurrent preparations is limited. All pods start in the end.
func TestPreparationsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, h := newNode(t, newMachine("app:1")), &preparer{takes: 100 * time.Millisecond}
		n.hooks, n.starts = hook.Chain{h}, 2
		n.start(t)
		defer func() { n.stop() }()
		n.crowd(240)
		time.Sleep(time.Minute)
		if got := len(n.list(false)); got != 240 {
			t.Errorf("%d pods run", got)
		}
		if h.most > 2*preparesPerStart {
			t.Errorf("%d pods prepared at once", h.most)
		}
	})
}

// TestPreparationsBehindADeadLink checks pods of the API server that hang while the link is down. They do not delay a static pod, and they
// delay each other only for a limited time.
func TestPreparationsBehindADeadLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, h := newNode(t, newMachine("app:1")), &preparer{dead: true}
		n.hooks, n.starts = hook.Chain{h}, 1
		n.start(t)
		defer func() { n.stop() }()
		n.crowd(240)
		synctest.Wait()
		began := time.Now()
		static := pod("static", "")
		static.Annotations = map[string]string{keys.ConfigSource: "file"}
		n.setWish("static", Wanted{Pod: static})
		for len(n.list(false)) == 0 {
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("the static pod waited for %v", took)
		}
		for h.countWaiting() < 240 {
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("the last pod began to prepare after %v", took)
		}
	})
}

func (p *preparer) countWaiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.busy
}
