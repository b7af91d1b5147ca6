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

// slowDisk is a disk on which counting goes on for an hour, whoever wants it to end.
type slowDisk struct{ Figures }

func (l slowDisk) Storage(ctx context.Context, p *v1.Pod, age time.Duration) (*stats.PodStats, error) {
	time.Sleep(time.Hour) // of the bubble
	return l.Figures.Storage(ctx, p, age)
}

// TestRunWaits: when it is to end while the files of a pod are counted, Run waits for that.
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
			t.Error("it has ended, and files are counted still")
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(done) == 0 {
			t.Fatal("it has not ended")
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		w.checkEvents(t, "measure limited", "closed") // nobody is evicted any more
	})
}
