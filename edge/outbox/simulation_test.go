package outbox

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// TestServerLearnsAll runs random histories. It checks that the API server finally has the newest status of every pod.
func TestServerLearnsAll(t *testing.T) {
	lives := 10
	if os.Getenv("ISLET_TEST_LONG") != "" {
		lives = 50
	}
	for seed := range uint64(lives) {
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) {
			in(t, func(w *world) {
				h := &history{world: w, r: rand.New(rand.NewPCG(seed, 3)), newest: map[types.UID]*v1.PodStatus{},
					static: map[string]*v1.Pod{}, done: map[types.UID]bool{}}
				w.forget = func(uid types.UID) error { // if the server lists a forgotten pod again, the node ends the pod again
					h.setDone(uid, false)
					return nil
				}
				for range 80 {
					h.step()
				}
				h.settle()
			})
		}) {
			return
		}
	}
}

type history struct {
	*world
	r      *rand.Rand
	newest map[types.UID]*v1.PodStatus // statuses in the node's store
	static map[string]*v1.Pod
	doneMu sync.Mutex
	done   map[types.UID]bool // deleting pods of which nothing is left
}

// isBusy reports whether a request for a pod is in flight.
func (o *Outbox) isBusy(uid types.UID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	it := o.pods[uid]
	return it != nil && it.busy
}

func (h *history) isDone(uid types.UID) bool {
	h.doneMu.Lock()
	defer h.doneMu.Unlock()
	return h.done[uid]
}

func (h *history) setDone(uid types.UID, done bool) {
	h.doneMu.Lock()
	defer h.doneMu.Unlock()
	h.done[uid] = done
}

func (h *history) clearDone() {
	h.doneMu.Lock()
	defer h.doneMu.Unlock()
	clear(h.done)
}

func (h *history) put(p *v1.Pod) {
	h.newest[p.UID] = status([]v1.PodPhase{v1.PodPending, v1.PodRunning, v1.PodFailed}[h.r.IntN(3)], fmt.Sprint(h.r.IntN(100)))
	h.box.Put(p, h.newest[p.UID])
}

func (h *history) step() {
	name := string(rune('a' + h.r.IntN(5)))
	switch n := h.r.IntN(15); {
	case n < 3:
		if h.Pod("default", name) == nil {
			h.Put(bound(name))
		}
	case n == 3:
		if p := h.Pod("default", name); p != nil && h.r.IntN(2) == 0 {
			h.Remove(p) // by force
			h.Put(bound(name))
		} else if p != nil {
			h.Terminate(p, h.r.Int64N(2)*10)
		}
	case n < 7:
		for _, p := range h.wanted.List() {
			if h.r.IntN(2) == 0 && !h.isDone(p.Pod.UID) {
				h.put(p.Pod)
			}
		}
	case n == 7:
		h.finish()
	case n == 8:
		h.Disconnect()
		h.CloseConnections()
	case n == 9:
		h.Reconnect()
		h.fail(nil)
	case n == 10:
		h.fail([]error{apierrors.NewInternalError(fmt.Errorf("x")), apierrors.NewTooManyRequests("x", 1),
			apierrors.NewTimeoutError("x", 1)}[h.r.IntN(3)])
	case n == 11:
		s := static(name+"-n", fmt.Sprint(h.r.Int32()))
		h.static[s.Name] = s
		h.put(s)
	case n == 12:
		if s := h.static[name+"-n"]; s != nil {
			delete(h.static, s.Name)
			if err := h.box.Finish(h.Context(), s); err != nil {
				h.Error(err)
			}
		}
	case n == 13:
		h.restart()
	default:
		if m := h.Pod("default", name+"-n"); m != nil {
			h.Terminate(m, 10)
		}
	}
	time.Sleep(time.Duration(h.r.IntN(8)) * time.Second)
	synctest.Wait()
	for _, p := range h.wanted.List() { // with and without a connection, and after a restart
		if p.Predecessor != "" && h.isDone(p.Predecessor) && !h.box.isBusy(p.Predecessor) {
			h.Errorf("pod %s has ended, and the pod that has replaced it still waits", p.Pod.Name)
		}
	}
}

// restart kills the outbox and starts another one, which gets the stored statuses.
func (h *history) restart() {
	h.end()
	h.start()
	h.clearDone()
	for _, p := range h.wanted.List() {
		if s := h.newest[p.Pod.UID]; s != nil {
			h.box.Put(p.Pod, s)
		}
	}
	for _, p := range h.static {
		h.box.Put(p, h.newest[p.UID])
	}
}

// finish ends all deleting pods, as the pod workers do.
func (h *history) finish() {
	for _, p := range h.wanted.List() {
		if p.Deleting && !h.isDone(p.Pod.UID) {
			h.put(p.Pod)
			h.setDone(p.Pod.UID, true)
			if err := h.box.Finish(h.Context(), p.Pod); err != nil {
				h.Error(err)
			}
		}
	}
}

func (h *history) settle() {
	h.Reconnect()
	h.fail(nil)
	for range 6 {
		time.Sleep(time.Minute)
		h.clearDone()
		h.finish()
	}
	time.Sleep(time.Minute)
	var have, want []string
	for _, p := range h.wanted.List() {
		if p.Deleting || p.Predecessor != "" {
			h.Errorf("pod %s is not acknowledged: %+v", p.Pod.Name, h.Pod("default", p.Pod.Name))
		}
		if s := h.newest[p.Pod.UID]; s != nil {
			want = append(want, fmt.Sprint(p.Pod.Name, " ", s.Phase, " ", s.Message))
		} else {
			want = append(want, p.Pod.Name)
		}
	}
	for name, p := range h.static {
		want = append(want, fmt.Sprint(name, " ", h.newest[p.UID].Phase, " ", h.newest[p.UID].Message))
	}
	for _, p := range h.Pods() {
		have = append(have, strings.TrimSpace(p.Name+" "+h.shown(p.Name)))
	}
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		h.Errorf("the server shows\n%s\nthe node\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
	before := h.Total()
	time.Sleep(20 * time.Minute)
	if n := h.Total() - before; n > 0 {
		h.Errorf("%d requests without a difference", n)
	}
}
