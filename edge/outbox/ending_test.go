package outbox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/kube"
)

// TestEndIsToldOnce checks that the end of a deleted pod is reported in one request. If the pod's cleanup takes long, the end is reported
// before the cleanup is complete.
func TestEndIsToldOnce(t *testing.T) {
	in(t, func(w *world) {
		quick, slow := w.bind("quick"), w.bind("slow")
		for _, p := range []*v1.Pod{quick, slow} {
			w.box.Put(p, status(v1.PodRunning, ""))
			synctest.Wait()
			deleted := w.Pod("default", p.Name).DeepCopy()
			deleted.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			w.box.PodSeen(deleted)
		}
		synctest.Wait()
		before := w.patches()
		for _, p := range []*v1.Pod{quick, slow} {
			w.box.Put(p, status(v1.PodFailed, "ended"))
		}
		time.Sleep(settleTime / 2)
		w.box.Put(quick, status(v1.PodFailed, "and all of it is gone"))
		if err := w.box.Finish(t.Context(), quick); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := w.patches() - before; n != 1 || w.shown("quick") != "gone" {
			t.Errorf("%d requests for the end of a pod, which is %s", n, w.shown("quick"))
		}
		time.Sleep(settleTime)
		if n := w.patches() - before; n != 2 || w.shown("slow") != "Failed ended" {
			t.Errorf("%d requests, the pod with remaining resources is %s", n, w.shown("slow"))
		}
	})
}

// TestDeletedOnce checks that a pod is deleted with one request, even if the watch reports an earlier change of the pod after the server
// has accepted the deletion. After a request that the server has not accepted, the pod is deleted again.
func TestDeletedOnce(t *testing.T) {
	in(t, func(w *world) {
		var requests, accept atomic.Int32
		late := func(rw http.ResponseWriter, r *http.Request) bool { // the watch reports the deletion much later
			if r.Method != http.MethodDelete {
				return false
			}
			requests.Add(1)
			if accept.Load() == 0 {
				w.WriteError(rw, r, apierrors.NewInternalError(errors.New("not now")))
				return true
			}
			w.WriteError(rw, r, &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusOK}})
			return true
		}
		w.Fault.Store(&late)
		p := w.bind("p")
		w.box.Put(p, status(v1.PodRunning, ""))
		synctest.Wait()
		w.Terminate(p, 30)
		synctest.Wait()
		w.box.Put(p, status(v1.PodFailed, "ended"))
		if err := w.box.Finish(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if n := requests.Swap(0); n < 2 {
			t.Errorf("%d requests to a server that does not accept them", n)
		}
		accept.Store(1)
		time.Sleep(time.Minute)
		for range 3 {
			w.box.PodSeen(w.Pod("default", p.Name))
			time.Sleep(time.Minute)
		}
		if n := requests.Load(); n != 1 {
			t.Errorf("%d requests after the server accepts them", n)
		}
		w.Remove(p)
		synctest.Wait()
		if n := len(w.box.deleted); n != 0 {
			t.Errorf("%d deletions are still known after the pod is gone", n)
		}
	})
}

// TestManyStarts checks that the status of a starting pod is delayed while other pods start. The link is slow or fast.
func TestManyStarts(t *testing.T) {
	manyStart(t, 200*time.Millisecond, 60*time.Millisecond, 20)
	// The pods start within four seconds. No request is sent in the first second. Later, one request is sent per interval.
	manyStart(t, 0, 20*time.Millisecond, int(3*time.Second/firstStatusEvery)+1)
}

// manyStart starts 200 pods one after the other, each after the given interval. The number of requests must be at most one per pod plus
// the given number.
func manyStart(t *testing.T, link, each time.Duration, most int) {
	in(t, func(w *world) {
		slow := func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPatch {
				time.Sleep(link)
			}
			return false
		}
		w.Fault.Store(&slow)
		var pods []*v1.Pod
		for i := range 200 {
			pods = append(pods, w.bind(fmt.Sprint("p", i)))
		}
		for _, p := range pods {
			w.box.Put(p, status(v1.PodPending, ""))
		}
		for _, p := range pods {
			time.Sleep(each)
			w.box.Put(p, status(v1.PodRunning, ""))
		}
		time.Sleep(time.Minute)
		if n := w.patches(); n > len(pods)+most || w.box.Pending() != 0 {
			t.Errorf("%d requests for %d pods, %d are pending", n, len(pods), w.box.Pending())
		}
	})
}

func TestEndIsAcknowledged(t *testing.T) {
	in(t, func(w *world) {
		p, ctx := w.bind("a"), t.Context()
		w.box.Put(p, status(v1.PodRunning, ""))
		synctest.Wait()
		w.Terminate(p, 5)
		time.Sleep(5 * time.Second)
		w.Disconnect()
		w.CloseConnections()
		w.box.Put(p, status(v1.PodFailed, "last words"))
		if err := w.box.Finish(ctx, p); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		if _, ok := w.wanted.Get(p.UID); !ok {
			t.Error("the pod was forgotten before the API server had its status")
		}
		w.Reconnect()
		w.retry <- struct{}{}
		time.Sleep(time.Minute) // longer than every back-off
		// The response to an earlier list request may have added the pod again, as a deleting pod. The pod's worker then calls Finish
		// again.
		if d, ok := w.wanted.Get(p.UID); ok && d.Deleting {
			if err := w.box.Finish(ctx, p); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Minute)
		}
		if _, ok := w.wanted.Get(p.UID); ok || w.shown("a") != "gone" {
			t.Error("not acknowledged", ok, w.shown("a"))
		}

		// A pod that was replaced meanwhile is not mistaken for the new pod.
		p = w.bind("b")
		w.Disconnect()
		w.CloseConnections()
		w.Remove(p)
		w.Put(bound("b"))
		w.Reconnect()
		time.Sleep(time.Minute) // longer than every back-off
		if d, ok := w.wanted.Get(p.UID); !ok || !d.Deleting {
			t.Error("the replaced pod is not being deleted:", d)
		}
		w.box.Put(p, status(v1.PodFailed, "of the old one"))
		if err := w.box.Finish(ctx, p); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute) // longer than every back-off
		if _, ok := w.wanted.Get(p.UID); ok || w.shown("b") != "" {
			t.Error(ok, w.shown("b"))
		}
	})
}

// TestReplacedWithoutLink checks that a pod which was replaced by another pod at the API server is forgotten without a request when it has
// ended. The cases are: after a restart without a list of the pods, after a request that failed for lack of a link, and while the server
// returns errors.
func TestReplacedWithoutLink(t *testing.T) {
	for name, cut := range map[string]func(w *world, down *atomic.Bool) time.Duration{
		"restarted": func(w *world, down *atomic.Bool) time.Duration {
			w.end()
			down.Store(true)
			w.Disconnect()
			w.start()
			return 0
		},
		"no link": func(w *world, down *atomic.Bool) time.Duration {
			down.Store(true)
			w.box.Put(w.known("other"), status(v1.PodFailed, "not sent"))
			return time.Minute
		},
		"failing": func(w *world, _ *atomic.Bool) time.Duration {
			w.fail(apierrors.NewInternalError(errors.New("x")))
			w.box.Put(w.known("other"), status(v1.PodFailed, "not sent"))
			return time.Hour
		},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				var down atomic.Bool
				w.end()
				w.before = func(context.Context) error {
					if down.Load() {
						return fmt.Errorf("%w: the cable is cut", kube.ErrNoLink)
					}
					return nil
				}
				w.start()
				w.bind("other")
				former := w.bind("a")
				w.box.Put(former, status(v1.PodRunning, ""))
				time.Sleep(time.Minute)
				w.Remove(former)
				replacement := w.bind("a")
				if p, _ := w.wanted.Get(replacement.UID); p.Predecessor != former.UID {
					t.Fatalf("the pod waits for %q", p.Predecessor)
				}
				time.Sleep(cut(w, &down))
				synctest.Wait()
				if err := w.box.Finish(t.Context(), former); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if p, ok := w.wanted.Get(replacement.UID); !ok || p.Predecessor != "" {
					t.Errorf("the pod still waits for %q", p.Predecessor)
				}
			})
		})
	}
}

// TestStoreIsNotTheServer checks that the statuses of all other pods are sent while the node's own store fails or blocks for many pods. A
// pod that could not be forgotten is forgotten later.
func TestStoreIsNotTheServer(t *testing.T) {
	for name, blocks := range map[string]bool{"fails": false, "blocks": true} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				var attempts atomic.Int32
				broken, repaired := errors.New("database or disk is full"), make(chan struct{})
				w.forget = func(types.UID) error {
					attempts.Add(1)
					if blocks {
						<-repaired
						return nil
					}
					select {
					case <-repaired:
						return nil
					default:
						return broken
					}
				}
				var ended []*v1.Pod
				for i := range 2 * maxParallel {
					p := w.bind(fmt.Sprint("ended", i))
					w.box.Put(p, status(v1.PodRunning, ""))
					synctest.Wait()
					w.Terminate(p, 5)
					synctest.Wait()
					w.box.Put(p, status(v1.PodFailed, ""))
					if err := w.box.Finish(t.Context(), p); err != nil {
						t.Error(err)
					}
					ended = append(ended, p)
				}
				time.Sleep(time.Minute) // the removals fail, in the bubble's time
				p := w.bind("other")
				for i := range 10 {
					w.box.Put(p, status([]v1.PodPhase{v1.PodRunning, v1.PodPending}[i%2], fmt.Sprint(i)))
					time.Sleep(10 * time.Second) // longer than every delay, in the bubble's time
					if got := w.shown("other"); !strings.HasSuffix(got, fmt.Sprint(" ", i)) {
						t.Errorf("after %d changes, the server has %q", i+1, got)
					}
				}
				time.Sleep(time.Hour) // retries, in the bubble's time
				if n := attempts.Load(); n < int32(len(ended)) || n > 30*int32(len(ended)) {
					t.Errorf("%d attempts in an hour", n)
				}
				if n := w.box.Pending(); !blocks && n != len(ended) {
					t.Errorf("%d pods are pending", n)
				}
				close(repaired)
				time.Sleep(2 * maxRefusedRetry) // longer than the interval of retries, in the bubble's time
				for _, p := range ended {
					if _, ok := w.wanted.Get(p.UID); ok {
						t.Errorf("pod %s is not forgotten", p.Name)
					}
				}
				if n := w.box.Pending(); n != 0 {
					t.Errorf("%d pods are pending", n)
				}
			})
		})
	}
}

// TestRefusedEnd checks that a pod whose last status the server rejects is deleted after a minute, and that a server which rejects the
// status only for a moment gets the status before the deletion, also if other clients write to the pod, or if the server has rejected
// earlier statuses. A server that does not answer, or answers with another error, gets it too.
func TestRefusedEnd(t *testing.T) {
	invalid := apierrors.NewInvalid(v1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "p", nil)
	for name, c := range map[string]struct {
		err   error
		fails time.Duration
		kept  bool // the pod is kept as long as the error lasts
		write bool // another client writes to the pod again and again
		early bool // the server rejects an earlier status, too
	}{
		"invalid":              {invalid, 20 * time.Minute, false, false, false},
		"forbidden":            {apierrors.NewForbidden(v1.Resource("pods"), "p", nil), 20 * time.Minute, false, false, false},
		"invalid for a moment": {invalid, 30 * time.Second, true, false, false},
		"invalid, with writes": {invalid, 30 * time.Second, true, true, false},
		"invalid, as before":   {invalid, 30 * time.Second, true, false, true},
		"conflict":             {apierrors.NewConflict(v1.Resource("pods"), "p", nil), 20 * time.Minute, true, false, false},
		"webhook":              {errWebhook, 20 * time.Minute, true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				p := w.bind("p")
				w.box.Put(p, status(v1.PodRunning, ""))
				time.Sleep(time.Minute)
				var told atomic.Bool // the server has stored the last status
				var isEnd atomic.Bool
				isEnd.Store(!c.early)
				began := time.Now()
				fault := func(rw http.ResponseWriter, r *http.Request) bool {
					if r.Method != http.MethodPatch {
						return false
					}
					if !isEnd.Load() || time.Since(began) < c.fails {
						w.WriteError(rw, r, c.err)
						return true
					}
					told.Store(true)
					return false
				}
				w.Fault.Store(&fault)
				if c.early {
					w.box.Put(p, status(v1.PodRunning, "rejected"))
					time.Sleep(10 * time.Minute)
					began = time.Now()
					isEnd.Store(true)
				}
				w.Terminate(w.Pod("default", "p"), 30)
				synctest.Wait()
				w.box.Put(p, status(v1.PodFailed, "ended"))
				if err := w.box.Finish(t.Context(), p); err != nil {
					t.Fatal(err)
				}
				for range 29 {
					if c.write {
						seen := w.Pod("default", "p")
						if seen == nil {
							break
						}
						w.box.PodSeen(seen)
					}
					time.Sleep((c.fails - time.Second) / 29)
				}
				if isKept := w.shown("p") != "gone"; isKept != c.kept {
					t.Errorf("the server rejects the last status, and the pod is kept: %t", isKept)
				}
				time.Sleep(10 * time.Minute)
				if w.shown("p") != "gone" || told.Load() != c.kept || w.box.Pending() != 0 {
					t.Errorf("later the pod is %s, its last status was stored: %t", w.shown("p"), told.Load())
				}
			})
		})
	}
}
