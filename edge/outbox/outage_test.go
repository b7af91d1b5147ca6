package outbox

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/islet-edge/islet/edge/apitest"
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

// TestSilentServerIsNoBusyLoop checks that the outbox sends a limited number of requests to a server that accepts them and never answers.
func TestSilentServerIsNoBusyLoop(t *testing.T) {
	in(t, func(w *world) {
		var pods []*v1.Pod
		for i := range 30 {
			pods = append(pods, w.bind(fmt.Sprint("p", i)))
			w.box.Put(pods[i], status(v1.PodRunning, ""))
		}
		time.Sleep(time.Minute)
		silent := apitest.NeverAnswer
		w.Fault.Store(&silent)
		w.CloseConnections()
		for range 10 {
			for _, p := range pods {
				w.box.Put(p, status(v1.PodFailed, fmt.Sprint("at ", time.Now().Unix())))
			}
			before := w.Total()
			time.Sleep(time.Minute)
			if n := w.Total() - before; n > 12 {
				t.Errorf("%d requests a minute", n)
			}
		}
		newest := status(v1.PodFailed, "newest")
		for _, p := range pods {
			w.box.Put(p, newest)
		}
		w.Fault.Store(nil)
		time.Sleep(time.Minute) // an unanswered request and a pause
		for i := range pods {
			if got := w.shown(fmt.Sprint("p", i)); got != "Failed newest" {
				t.Error(i, got)
			}
		}
	})
}

func TestFailuresAreNoBusyLoop(t *testing.T) {
	for _, err := range []error{apierrors.NewInternalError(fmt.Errorf("broken")), apierrors.NewTooManyRequests("slow down", 3),
		apierrors.NewUnauthorized("who?"), apierrors.NewForbidden(v1.Resource("pods"), "n", nil),
		apierrors.NewConflict(v1.Resource("pods"), "n", nil)} {
		t.Run(string(apierrors.ReasonForError(err)), func(t *testing.T) {
			in(t, func(w *world) {
				for i := range 5 {
					w.box.Put(w.bind(fmt.Sprint("p", i)), status(v1.PodRunning, ""))
				}
				w.box.Put(static("s-n", "1"), status(v1.PodRunning, ""))
				time.Sleep(time.Minute)
				w.fail(err)
				for i := range 5 {
					p, _ := w.wanted.Get(w.Pod("default", fmt.Sprint("p", i)).UID)
					w.box.Put(p.Pod, status(v1.PodFailed, "news"))
				}
				w.Terminate(static("s-n", "1"), 5)
				time.Sleep(10 * time.Minute)
				before := w.Total()
				time.Sleep(10 * time.Minute)
				if n := (w.Total() - before) / 10; n > 30 {
					t.Errorf("%d requests a minute", n)
				}
				w.fail(nil)
				time.Sleep(6 * time.Minute)
				if w.shown("p4") != "Failed news" || w.shown("s-n") != "Running" {
					t.Error(w.shown("p4"), w.shown("s-n"))
				}
			})
		})
	}
}
