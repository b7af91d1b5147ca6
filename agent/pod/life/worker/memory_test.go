package worker

import (
	"fmt"
	"log/slog"
	"runtime"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/plan"
)

// TestWorkerMemory checks the memory that the records of a worker occupy after the pod's actions have ended, including the published
// input. A node has one worker for each pod.
func TestWorkerMemory(t *testing.T) {
	const count, most = 500, 2500 // bytes
	s := New(Config{Log: slog.New(slog.DiscardHandler)})
	all := make([]*worker, 0, count)
	before := heapInUse()
	for i := range count {
		w := newWorker(types.UID(fmt.Sprint("uid", i)), s)
		for _, a := range []plan.Action{{Op: plan.Admit}, {Op: plan.RunSandbox}, {Op: plan.StartContainer, Container: "c"}} {
			w.cancelFuncs[a.Container] = func() {}
			w.recordStart(plan.Input{}, a)
			w.recordResult(result{subject: a.Container})
		}
		in := plan.Input{UID: w.uid}
		w.updateInput(&in)
		w.publishInput(in, false)
		all = append(all, w)
	}
	if each := (heapInUse() - before) / count; each > most {
		t.Errorf("a worker without actions in flight occupies %d bytes, want at most %d", each, most)
	} else {
		t.Logf("%d bytes", each)
	}
	runtime.KeepAlive(all)
}

// TestWorkerStack checks that the worker of a running pod keeps a small stack.
func TestWorkerStack(t *testing.T) {
	const count, most = 100, 12 << 10 // bytes; twice the usual size, because the race detector needs more
	bubble(t, newMachine("app:1"), func(t *testing.T, n *node) {
		before := stacksInUse()
		for i := range count {
			uid := fmt.Sprint("uid", i)
			n.setWish(types.UID(uid), Wanted{Pod: pod(uid, "")})
		}
		if each := (stacksInUse() - before) / count; each > most {
			t.Errorf("the stack of a waiting worker occupies %d bytes, want at most %d", each, most)
		} else {
			t.Logf("%d bytes", each)
		}
	})
}

// stacksInUse returns the size of all stacks after they have shrunk. Each garbage collection halves a stack at most once.
func stacksInUse() int64 {
	for range 6 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.StackInuse)
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
