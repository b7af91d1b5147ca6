package configure

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/islet-edge/islet/agent/change/guard"
	"github.com/islet-edge/islet/agent/change/trial"
	"github.com/islet-edge/islet/internal/seriestest"
)

// TestAlertSeries records the metrics of nodes to which versions and configurations were sent, for the test of the alerts.
func TestAlertSeries(t *testing.T) {
	for name, begin := range map[string]func(w *world){
		"update":        func(w *world) { w.offered(staged(w.T)) },
		"configuration": func(w *world) { w.tried(kubeletHead + "maxPods: 17\n") },
	} {
		synctest.Test(t, func(t *testing.T) {
			w, r, began := newWorld(t, ""), seriestest.New(name), time.Now()
			scrape := func(k *run, what string) {
				t.Helper()
				r.Scrape(t, time.Since(began), what, k.Collectors()...)
			}
			scrape(w.start(guard.Role{}), "nothing was tried")
			time.Sleep(30 * time.Minute)
			begin(w)
			scrape(w.start(guard.Role{Kind: guard.Trial}), "on trial")
			time.Sleep(time.Minute)
			scrape(w.start(guard.Role{After: true, Why: "it crashes"}), "the first trial has failed")
			time.Sleep(3 * time.Hour)
			begin(w)
			scrape(w.start(guard.Role{}), "the second trial was interrupted")
			rec, err := trial.Load(w.dir)
			if err != nil || !rec.Begin(trial.Facts{}, "", time.Now()) || trial.Save(w.dir, rec) != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if why := w.start(guard.Role{Kind: guard.Trial}).acceptTrial(); why != "" {
				t.Error(why)
			}
			scrape(w.start(guard.Role{After: true}), "the trial was repeated, and has succeeded")
			r.Compare(t)
		})
	}
}
