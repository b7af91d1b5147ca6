package outbox

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/internal/podspec"
)

func TestWhatUsersWaitForIsSentAtOnce(t *testing.T) {
	in(t, func(w *world) {
		p := w.bind("a")
		w.box.Put(p, status(v1.PodPending, ""))
		synctest.Wait()
		if w.patches() != 0 || w.box.Pending() != 1 {
			t.Error("the starting state may be delayed, but must be sent")
		}
		w.box.Put(p, status(v1.PodRunning, ""))
		synctest.Wait()
		if w.shown("a") != "Running" || w.patches() != 1 || w.box.Pending() != 0 {
			t.Error(w.shown("a"), w.patches(), w.box.Pending())
		}
		for i := range 20 {
			w.box.Put(p, status(v1.PodRunning, fmt.Sprint(i)))
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		if w.shown("a") != "Running 19" || w.patches() != 2 {
			t.Error(w.shown("a"), w.patches())
		}
		before := w.Total()
		time.Sleep(time.Hour)
		if w.Total() != before || w.box.Pending() != 0 {
			t.Error("requests were sent without a change")
		}
	})
}

// TestFirstWordsComeLast checks that few requests are sent when pods start together. Most pods are reported for the first time when they
// are running. A pod that stays in the starting state is reported too, although other requests are always pending.
func TestFirstWordsComeLast(t *testing.T) {
	in(t, func(w *world) {
		slow := func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPatch {
				time.Sleep(100 * time.Millisecond)
			}
			return false
		}
		w.Fault.Store(&slow)
		var pods []*v1.Pod
		for i := range 20 {
			pods = append(pods, w.bind(fmt.Sprint("p", i)))
		}
		for _, p := range pods {
			w.box.Put(p, status(v1.PodPending, ""))
		}
		time.Sleep(settleTime + 150*time.Millisecond)
		for _, p := range pods {
			w.box.Put(p, status(v1.PodRunning, ""))
		}
		time.Sleep(time.Minute)
		if n := w.patches(); n > len(pods)+3 || w.box.Pending() != 0 { // two or three pods were reported before they ran
			t.Errorf("%d requests for %d pods, %d are pending", n, len(pods), w.box.Pending())
		}

		stays := w.bind("stays")
		w.box.Put(stays, status(v1.PodPending, ""))
		for i := 0; w.shown("stays") != "Pending"; i++ {
			for _, p := range pods { // more pods than four concurrent requests can report
				w.box.Put(p, status([]v1.PodPhase{v1.PodFailed, v1.PodRunning}[i%2], ""))
			}
			time.Sleep(90 * time.Millisecond)
			if i > 1000 {
				t.Fatal("the status of a pod that does not start is never sent")
			}
		}
		w.Fault.Store(nil)
		time.Sleep(time.Minute)
	})
}

// TestReadySoon checks that a pod whose probe succeeds soon is reported once. A pod that stays or becomes unready is reported too.
func TestReadySoon(t *testing.T) {
	in(t, func(w *world) {
		runs := func(phase v1.PodPhase, ready bool) *v1.PodStatus {
			s := status(phase, "")
			s.Conditions[0].Status = v1.ConditionFalse
			if ready {
				s.Conditions[0].Status = v1.ConditionTrue
			}
			if phase == v1.PodRunning {
				s.ContainerStatuses = []v1.ContainerStatus{{Name: "c", Ready: ready,
					State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.Now()}}}}
			}
			return s
		}
		shows := func(name string) string {
			return fmt.Sprint(w.shown(name), " ", podspec.IsReady(&w.Pod("default", name).Status))
		}
		quick, slow := w.bind("quick"), w.bind("slow")
		for _, p := range []*v1.Pod{quick, slow} {
			w.box.Put(p, runs(v1.PodPending, false))
			time.Sleep(100 * time.Millisecond)
			w.box.Put(p, runs(v1.PodRunning, false))
		}
		time.Sleep(settleTime / 2)
		w.box.Put(quick, runs(v1.PodRunning, true))
		synctest.Wait()
		if n := w.patches(); n != 1 || shows("quick") != "Running true" {
			t.Errorf("%d requests for one that is ready, it is %s", n, shows("quick"))
		}
		time.Sleep(settleTime)
		if n := w.patches(); n != 2 || shows("slow") != "Running false" {
			t.Errorf("%d requests, the slow one is %s", n, shows("slow"))
		}
		w.box.Put(quick, runs(v1.PodRunning, false))
		w.box.Put(slow, runs(v1.PodRunning, true))
		synctest.Wait()
		if n := w.patches(); n != 4 || shows("quick") != "Running false" || shows("slow") != "Running true" {
			t.Errorf("%d requests, %s, %s", n, shows("quick"), shows("slow"))
		}
	})
}
