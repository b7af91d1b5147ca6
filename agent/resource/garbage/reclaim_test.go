package garbage

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	model "github.com/prometheus/client_model/go"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/runtime/cri"
)

// This helper returns the numbers of removed images for each cause.
func collected(t *testing.T, g *Garbage) string {
	t.Helper()
	all := map[string]int{}
	seen := make(chan prometheus.Metric, 10)
	for _, c := range g.Collectors() {
		c.Collect(seen)
	}
	close(seen)
	for s := range seen {
		var m model.Metric
		if err := s.Write(&m); err != nil || len(m.Label) != 1 || m.Label[0].GetName() != "reason" {
			t.Fatalf("%v %v", &m, err)
		}
		all[m.Label[0].GetValue()] += int(m.GetCounter().GetValue())
	}
	return fmt.Sprint(all)
}

// TestFullToTheLastByte checks a disk without any free space. Images are removed first, and data that belongs to no image afterwards,
// because the search for such data needs some free space.
func TestFullToTheLastByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fill := func(low int) (*world, *Garbage) {
			w := &world{total: 1000, other: 700, junk: 30, stuffed: true}
			w.image(1, 240, "wanted:1")
			w.image(2, 30, "nobodys:1")
			w.pods = []*v1.Pod{pod("p", v1.PodRunning, "wanted:1")}
			return w, w.garbage(func(c *Config) { c.High, c.Low = 95, low })
		}
		w, g := fill(94)
		run(t, g, Period+time.Second)
		if got := w.remaining(); !slices.Equal(got, []int{1}) || w.junk > 0 || w.asked["reclaim"] != 2 || len(w.events) > 0 {
			t.Errorf("left %v, %d of junk, calls %v, events %v", got, w.junk, w.asked, w.events)
		}
		w, g = fill(90)
		run(t, g, Period+time.Second)
		if got := w.remaining(); !slices.Equal(got, []int{1}) || w.junk > 0 || fmt.Sprint(w.events) != "[FreeDiskSpaceFailed]" {
			t.Errorf("not enough: left %v, %d of junk, events %v", got, w.junk, w.events)
		}
		w, g = fill(94)
		if err := g.ReclaimImages(t.Context()); err != nil || w.junk > 0 || len(w.images) != 1 {
			t.Errorf("for an eviction: %v, %d of junk, left %v", err, w.junk, w.remaining())
		}
		w, g = fill(94)
		w.images = w.images[:1] // no image can be removed
		if err := g.ReclaimImages(t.Context()); !errors.Is(err, unix.ENOSPC) || w.junk == 0 {
			t.Errorf("no image can be removed: %v, %d of junk", err, w.junk)
		}
	})
}

// TestPruneRest checks that data that belongs to no image is removed. The result contains the size of this data. A dry run reports that
// such data exists, but not its size.
func TestPruneRest(t *testing.T) {
	w := &world{total: 1000, junk: 30}
	w.image(1, 5, "nobodys:1")
	g := w.garbage()
	if out := g.Prune(t.Context(), true); !out.Rest || out.Freed > 0 || w.junk == 0 || w.asked["reclaim"] > 0 {
		t.Errorf("dry: %+v, %d of junk", out, w.junk)
	}
	if out := g.Prune(t.Context(), false); !out.Rest || out.Freed != 30 || w.junk > 0 || len(out.Removed) != 1 || out.Error != "" {
		t.Errorf("%+v, %d of junk", out, w.junk)
	}
	w.stuffed = true
	if out := g.Prune(t.Context(), false); !strings.Contains(out.Error, "free space that belongs to no image: no space left on device") {
		t.Errorf("full: %+v", out)
	}
	g = w.garbage(func(c *Config) { c.Images = struct{ cri.Images }{w} })
	if out := g.Prune(t.Context(), false); out.Rest || out.Error != "" {
		t.Errorf("a runtime that cannot: %+v", out)
	}
}

// TestNoClock checks a board without a real-time clock. An image does not count as old if its pull or its last use has a time in 1970.
func TestNoClock(t *testing.T) {
	now := time.Unix(60, 0)
	w := &world{total: 1000}
	w.image(1, 1, "a:1")
	w.image(2, 1, "b:1")
	w.pods = []*v1.Pod{pod("p", v1.PodRunning, "a:1")}
	g := w.garbage(func(c *Config) { c.MaxAge, c.Now = 30*day, func() time.Time { return now } })
	look := func(want ...int) {
		t.Helper()
		if err := g.collectImages(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := w.remaining(); !slices.Equal(got, want) {
			t.Errorf("at %v: left %v", now, got)
		}
	}
	look(1, 2)
	w.image(3, 1, "c:1")
	w.pods = nil // a:1 was last used in 1970
	look(1, 2, 3)
	now = noon
	look(1, 2, 3)
	now = noon.Add(29 * day)
	look(1, 2, 3)
	now = noon.Add(31 * day)
	look()
}

// checkCollected collects images at the time now, and checks which images remain.
func checkCollected(t *testing.T, w *world, g *Garbage, now time.Time, want []int) {
	t.Helper()
	if err := g.collectImages(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := w.remaining(); !slices.Equal(got, want) {
		t.Errorf("at %v: left %v", now, got)
	}
}

// TestClockAhead checks a board whose clock was once ahead by years. The stored times of the images are replaced when the clock has been
// right for a while. Until then a clock that is behind for a short time after a boot makes no image old.
func TestClockAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := noon.AddDate(72, 0, 0)
		w := &world{total: 1000, other: 950}
		w.image(1, 1, "a:1")
		w.image(2, 1, "b:1")
		w.pods = []*v1.Pod{pod("p", v1.PodRunning, "a:1")}
		start := func() *Garbage {
			return w.garbage(func(c *Config) { c.MaxAge, c.High, c.Now = 30*day, 100, func() time.Time { return now } })
		}
		g := start()
		look := func(want ...int) {
			t.Helper()
			checkCollected(t, w, g, now, want)
		}
		pass := func(d time.Duration) {
			now = now.Add(d)
			time.Sleep(d) // in the bubble's time
		}
		look(1, 2)
		w.pods = nil // a:1 was last used in that time
		look(1, 2)
		now = noon // the machine boots, and its clock is behind for some minutes
		g = start()
		look(1, 2)
		pass(10 * time.Minute)
		now = noon.AddDate(72, 0, 1)
		look(1, 2)
		now = noon // it was ahead indeed
		look(1, 2)
		pass(settleTime)
		look(1, 2)
		g = start()
		now = now.Add(29 * day)
		look(1, 2)
		now = now.Add(2 * day)
		look()
		w.image(3, 1, "c:1")
		now = now.AddDate(72, 0, 0)
		look(3)
		now = now.AddDate(-72, 0, 0)
		g = start()
		look(3)
		pass(settleTime)
		look(3)
		pass(2 * time.Minute)
		if err := g.ReclaimImages(t.Context()); err != nil || len(w.remaining()) > 0 {
			t.Errorf("%v: left %v although the disk is full", err, w.remaining())
		}
	})
}

// TestClockBehindOffline checks a node that runs without a network for days after a boot, while its clock is behind. No image becomes old
// when the clock is synchronized, but a full disk removes images meanwhile. A clock that nothing synchronizes is right after a week.
func TestClockBehindOffline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now, synced := noon.AddDate(0, 6, 0), true
		w := &world{total: 1000, other: 950}
		w.image(1, 1, "a:1")
		start := func() *Garbage {
			return w.garbage(func(c *Config) {
				c.MaxAge, c.High, c.Now = 30*day, 100, func() time.Time { return now }
				c.ClockSynced = func() bool { return synced }
			})
		}
		g := start()
		look := func(want ...int) {
			t.Helper()
			checkCollected(t, w, g, now, want)
		}
		pass := func(d time.Duration) {
			now = now.Add(d)
			time.Sleep(d) // in the bubble's time
		}
		look(1)
		w.image(2, 1, "b:1")
		look(1, 2)
		now, synced = noon, false // the clock of the next boot is six months behind
		g = start()
		look(1, 2)
		for range 3 {
			pass(day)
			look(1, 2)
		}
		now, synced = noon.AddDate(0, 6, 4), true
		look(1, 2)
		now, synced = noon, false
		g = start()
		look(1, 2)
		pass(settleTime)
		if err := g.ReclaimImages(t.Context()); err != nil || len(w.remaining()) > 0 {
			t.Errorf("%v: left %v although the disk is full", err, w.remaining())
		}
		now = noon.AddDate(0, 6, 5)
		w.image(3, 1, "c:1")
		look(3)
		now = noon // it was ahead, and nothing synchronizes it
		look(3)
		pass(unsyncedSettleTime)
		look(3)
		pass(31 * day)
		look()
	})
}
