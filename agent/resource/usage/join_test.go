package usage

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/podtest"
)

// A layeredRuntime is a fake runtime that counts the bytes of containers. Each count waits until the test sends the result.
type layeredRuntime struct {
	runtime
	asked chan struct{} // each count sends a value when it begins
	bytes chan uint64
	whole bool
}

func (l *layeredRuntime) ListContainers(ctx context.Context, req *api.ListContainersRequest) (*api.ListContainersResponse, error) {
	out, err := l.runtime.ListContainers(ctx, req)
	out.Containers = out.Containers[1:] // the virtual machine's container is missing
	out.Containers[0].State = api.ContainerState_CONTAINER_RUNNING
	return out, err
}

func (l *layeredRuntime) WritableLayers(ctx context.Context) (map[string]*api.FilesystemUsage, error) {
	u, _, err := l.WholeLayer(ctx, "c1")
	return map[string]*api.FilesystemUsage{"c1": u}, err
}

func (l *layeredRuntime) WholeLayer(ctx context.Context, id string) (*api.FilesystemUsage, bool, error) {
	l.asked <- struct{}{}
	select {
	case n := <-l.bytes:
		return &api.FilesystemUsage{UsedBytes: &api.UInt64Value{Value: n}, InodesUsed: &api.UInt64Value{Value: 1}}, l.whole, nil
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
}

// layeredNode returns a node that measures only once.
func layeredNode(t *testing.T) (*Usage, *layeredRuntime) {
	u, _ := node(t)
	l := &layeredRuntime{asked: make(chan struct{}, 10), bytes: make(chan uint64)}
	u.c.Runtime = l
	return u, l
}

// TestOneLook checks that concurrent callers share one count of files. If the context of the caller that counts ends, another caller begins
// a new count. A caller that needs no files does not wait. A caller returns when its context ends.
func TestOneLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, l := layeredNode(t)
		first, leave := context.WithCancel(t.Context())
		impatient, goes := context.WithCancel(t.Context())
		answers := map[context.Context]chan error{
			first: make(chan error, 1), t.Context(): make(chan error, 1), impatient: make(chan error, 1),
		}
		var got *joinedFigures
		for _, ctx := range []context.Context{first, t.Context(), impatient} {
			go func() {
				j, err := u.joinFigures(ctx, true)
				if ctx == t.Context() {
					got = j
				}
				answers[ctx] <- err
			}()
			synctest.Wait()
		}
		if n := len(l.asked); n != 1 {
			t.Errorf("files are counted %d times at once", n)
		}
		if pods, err := u.Processes(t.Context()); err != nil || len(pods) != 1 || *pods[0].Memory.UsageBytes != 1000 {
			t.Errorf("of processes, while files are counted: %v %+v", err, pods)
		}
		goes()
		if err := <-answers[impatient]; !errors.Is(err, context.Canceled) {
			t.Errorf("the caller that left got %v", err)
		}
		leave()
		if err := <-answers[first]; !errors.Is(err, context.Canceled) {
			t.Errorf("the first caller got %v", err)
		}
		synctest.Wait()
		if n := len(l.asked); n != 2 {
			t.Errorf("files were counted %d times after the first left", n)
		}
		l.bytes <- 4096
		if err := <-answers[t.Context()]; err != nil || got.byID["c1"].layer.UsedBytes.Value != 4096 {
			t.Errorf("the waiting caller got %v %+v", err, got)
		}
		if j, err := u.joinFigures(t.Context(), false); err != nil || j != got || len(u.gatherings) != 0 {
			t.Errorf("afterwards: %v, the same measurement: %v, %d running", err, j == got, len(u.gatherings))
		}
	})
}

// TestStorage checks that the bytes of a container are reported if they could be counted completely. Otherwise the reported number exceeds
// the size of any disk.
func TestStorage(t *testing.T) {
	u, l := layeredNode(t)
	pod := podtest.New("plain", podtest.UID("uid-plain"))
	for _, l.whole = range []bool{true, false} {
		go func() { l.bytes <- 1 << 20 }()
		got, err := u.Storage(t.Context(), pod, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if used := *got.Containers[0].Rootfs.UsedBytes; (used == 1<<20) != l.whole || (used == unlimited) == l.whole {
			t.Errorf("whole %v: %d bytes", l.whole, used)
		}
	}
	if l.runtime.asked != 0 {
		t.Error("other measurements were made")
	}
}
