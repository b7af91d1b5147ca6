package eviction

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// slowDisk is a fake whose count of files takes an hour. The count cannot be cancelled.
type slowDisk struct{ Figures }

func (l slowDisk) Storage(ctx context.Context, p *v1.Pod, age time.Duration) (*stats.PodStats, error) {
	time.Sleep(time.Hour) // in the bubble's time
	return l.Figures.Storage(ctx, p, age)
}

// TestRunWaits checks that Run waits for a running count of a pod's files when its context ends.
func TestRunWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limited := writes(aPod("limited", "", "", 0), 0, 0, 11*mib)
		limited.Pod.Spec.Volumes[0].EmptyDir.SizeLimit = new(resource.MustParse("10Mi"))
		w := newWorld(t, func(w *world) { w.pods = []Candidate{limited} })
		w.c.Figures = slowDisk{w}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		w.checkEvents(t, "pods may ask again")
		stop()
		synctest.Wait()
		if len(done) > 0 {
			t.Error("Run returned while files were counted")
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(done) == 0 {
			t.Fatal("Run did not return")
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		w.checkEvents(t, "measure limited", "closed") // no pod is evicted after the end of the context
	})
}
