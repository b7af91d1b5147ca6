package bundle

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/change/bundle/feed"
	"github.com/islet-edge/islet/edge/desired"
)

// TestRevertDuringStaging checks that a person can return to the bundle before while another bundle is read from a slow medium. The other
// bundle then does not start its trial.
func TestRevertDuringStaging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		n, stop := w.run()
		defer stop()
		for number, change := range []func(string){nil, second("more")} {
			_, err := apply(n, w.bundle(int64(number+1), change), false)
			w.must(err)
			time.Sleep(5 * time.Second) // in the bubble's time, until the bundle is kept
		}
		reverted := false
		w.during = func() {
			if _, err := apply(n, "x", false); err == nil || !strings.Contains(err.Error(), "try again later") {
				t.Errorf("two at the same time: %v", err)
			}
			if !reverted {
				reverted = true
				_, err := n.Revert(t.Context())
				w.must(err)
			}
		}
		if _, err := apply(n, w.bundle(3, second("third")), false); err == nil || !strings.Contains(err.Error(), "apply it again") {
			t.Errorf("the bundle that was being staged: %v", err)
		}
		time.Sleep(time.Second)
		if s, err := n.Status(); err != nil || s.Trial != nil || s.Current == nil || s.Current.Number != 1 {
			t.Errorf("%+v, %v", s, err)
		}
		w.check(n, "after the revert")
	})
}

// TestFolderDuringStaging checks that the folder and the images of a bundle that is being staged are kept when the record changes.
func TestFolderDuringStaging(t *testing.T) {
	w := newWorld(t)
	n := w.boot(nil)
	_, err := apply(n, w.bundle(1, nil), false)
	w.must(err)
	n.changing.Lock()
	w.must(n.change(func(r *Record) error { r.Keep(w.clock); return nil }))
	n.changing.Unlock()
	steps := 0
	n.c.crash = func(step string) {
		if strings.HasPrefix(step, "file ") {
			steps++
			w.must(n.sweep())
			n.pin()
		}
	}
	before := len(w.pinned)
	_, err = apply(n, w.bundle(2, replace("manifests/web.yaml", "name: web", "name: other")), false)
	w.must(err)
	if steps == 0 || len(w.pinned) < before {
		t.Errorf("%d steps, pinned %q", steps, w.pinned)
	}
	w.check(n, "after the staging")
}

// TestPinsWithoutFolder checks that the images of a bundle stay pinned when its folder cannot be read.
func TestPinsWithoutFolder(t *testing.T) {
	w := newWorld(t)
	_, err := apply(w.boot(nil), w.bundle(1, nil), false)
	w.must(err)
	want := slices.Clone(w.pinned)
	w.must(os.RemoveAll(filepath.Join(w.dir, foldersDir)))
	w.pinned = nil
	if w.boot(nil); len(want) == 0 || !slices.Equal(w.pinned, want) {
		t.Errorf("pinned %q, want %q", w.pinned, want)
	}
}

// TestRepair checks that a bundle whose folder or images are damaged has not fewer pods, and that applying the same bundle again repairs it
// without a trial, also if it has expired since. A damaged folder of the previous bundle is repaired when that bundle is applied again.
func TestRepair(t *testing.T) {
	build := newWorld(t)
	one, two := build.bundle(1, second("more")), build.bundle(2, nil)
	inFolder := func(change func(folder string) error) func(*world, string) {
		return func(w *world, folder string) { w.must(change(folder)) }
	}
	for name, damage := range map[string]struct {
		do       func(w *world, folder string)
		readable bool
	}{
		"a file is missing":   {do: inFolder(func(f string) error { return os.Remove(filepath.Join(f, filesDir, "web.yaml")) })},
		"a file is cut":       {do: inFolder(func(f string) error { return os.Truncate(filepath.Join(f, filesDir, "more.yaml"), 10) })},
		"a file is new":       {do: inFolder(func(f string) error { return os.WriteFile(filepath.Join(f, filesDir, "x.yaml"), nil, 0o600) })},
		"no contents":         {do: inFolder(func(f string) error { return os.Remove(filepath.Join(f, contentsFile)) })},
		"other contents":      {do: inFolder(func(f string) error { return os.WriteFile(filepath.Join(f, contentsFile), []byte("{}"), 0o600) })},
		"an empty manifest":   {do: inFolder(func(f string) error { return os.Truncate(filepath.Join(f, manifestFile), 0) })},
		"no folder":           {do: inFolder(os.RemoveAll)},
		"an older islet's":    {do: inFolder(func(f string) error { return os.Remove(filepath.Join(f, manifestFile)) }), readable: true},
		"the images are gone": {do: func(w *world, _ string) { clear(w.imported) }, readable: true},
		"another platform": {do: func(w *world, _ string) {
			clear(w.imported)
			r, _, err := load(w.dir)
			for d := range r.Images {
				r.Images[d] = []string{"localhost/web@" + string(someDigest("a"))}
			}
			w.must(errors.Join(err, r.save(w.dir)))
		}, readable: true},
		"one image is not here": {do: func(w *world, _ string) { delete(w.imported, w.pinned[0]) }, readable: true},
	} {
		hows := []string{"a person", "a stick", "a source", "the previous bundle"}
		if name != "a file is missing" && name != "the images are gone" {
			hows = hows[:1]
		}
		for _, how := range hows {
			what := name + ", " + how
			w := newWorld(t)
			n := w.boot(nil)
			_, err := apply(n, one, false)
			w.must(err)
			keep(n)
			if how == "the previous bundle" {
				_, err := apply(n, two, false)
				w.must(err)
				keep(n)
			}
			current, before := *n.now().Current, n.now()
			damaged := Bundle{"kiosk", 1, current.Digest}
			if before.Previous != nil {
				damaged = *before.Previous
			}
			folder := filepath.Join(w.dir, foldersDir, folderName(damaged.Digest))
			damage.do(w, folder)
			n = w.boot(nil)
			if _, err := n.read(damaged); (err == nil) != damage.readable {
				t.Errorf("%s: %v", what, err)
			}
			if how != "the previous bundle" {
				w.clock = w.clock.AddDate(1, 0, 0) // the bundle has expired
			}
			switch how {
			case "a person":
				_, err = apply(n, one, false)
			case "a stick":
				_, _, err = n.ApplyNewest(t.Context(), offers(one))
			case "a source":
				_, err = n.ApplyFollowed(t.Context(), one, feed.Seen{})
			case "the previous bundle":
				_, err = apply(n, one, true)
			}
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if r := n.now(); *r.Current != current || (r.Trial != nil) != (how == "the previous bundle") || !r.Last.Time.Equal(before.Last.Time) {
				t.Errorf("%s: %+v", what, r)
			}
			if n.now().Trial == nil {
				(&loop{Node: n}).round(t.Context())
				if !slices.Equal(w.names(), []string{"more", "web"}) {
					t.Errorf("%s: %v", what, w.names())
				}
				if _, err := apply(n, one, false); err != nil || !n.isComplete(t.Context(), damaged) {
					t.Errorf("%s: not repaired: %v", what, err)
				}
			}
			w.check(n, what)
		}
	}
}

// TestNameDuringStaging checks that a pod that another source has defined while the images were imported is not replaced.
func TestNameDuringStaging(t *testing.T) {
	w := newWorld(t)
	w.during = func() { w.others = []desired.Pod{w.pod("web")} }
	n := w.boot(nil)
	if _, err := apply(n, w.bundle(1, nil), false); err == nil || !strings.Contains(err.Error(), "already defined by") {
		t.Error(err)
	}
	if r := n.now(); r.InForce() != nil || len(w.folders()) > 0 || len(w.pinned) > 0 {
		t.Errorf("%+v, folders %q, pinned %q", r, w.folders(), w.pinned)
	}
}

// TestLostRecord checks that a node without its record still knows from the database that a bundle has expired, although its clock was set
// back.
func TestLostRecord(t *testing.T) {
	w := newWorld(t)
	expires := w.clock.Add(30 * 24 * time.Hour).Format(time.RFC3339)
	old := w.bundle(1, replace("bundle.yaml", "expires: 2027-01-31T00:00:00Z", "expires: "+expires))
	w.clock = w.clock.Add(60 * 24 * time.Hour)
	_, err := apply(w.boot(nil), w.bundle(2, replace("bundle.yaml", "expires: 2027-01-31T00:00:00Z", "")), false)
	w.must(err)
	w.must(os.Remove(filepath.Join(w.dir, File)))
	w.clock = w.clock.Add(-60 * 24 * time.Hour)
	if _, err := apply(w.boot(nil), old, true); err == nil || !strings.Contains(err.Error(), "has expired") {
		t.Error(err)
	}
}

// TestMustAfterFailure checks that a pod that has not become Ready again since the last bundle failed is required for the next bundle. A
// pod that has not been Ready for longer is not.
func TestMustAfterFailure(t *testing.T) {
	for wait, want := range map[time.Duration]bool{time.Second: true, time.Hour: false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.bad["bad"] = true
			n, stop := w.run()
			for number, change := range []func(string){nil, second("bad")} {
				_, err := apply(n, w.bundle(int64(number+1), change), false)
				w.must(err)
				time.Sleep(15 * time.Second) // in the bubble's time, until the bundle is kept or has failed
			}
			stop()
			w.bad["web"] = true
			w.clock = w.clock.Add(wait)
			n, stop = w.run()
			defer stop()
			time.Sleep(time.Second)
			_, err := apply(n, w.bundle(3, second("more")), false)
			w.must(err)
			if r := n.now(); r.Trial == nil || slices.Contains(r.Trial.Must, "default/web") != want {
				t.Errorf("after %s: %+v", wait, r.Trial)
			}
		})
	}
}

// TestDescribeEnd checks that the reason for a failure says how a container has ended, also if its pod is deleted later.
func TestDescribeEnd(t *testing.T) {
	p := &v1.Pod{}
	p.Status.ContainerStatuses = []v1.ContainerStatus{{
		Name: "web", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 3, Message: "begin\nno \x1b[31msuch key\n"}},
	}}
	if got, want := describe(p), "CrashLoopBackOff: container web has ended with code 3: no \ufffd[31msuch key"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	p.Status.ContainerStatuses[0].LastTerminationState.Terminated.Message = strings.Repeat("x", 4096)
	if got := describe(p); len(got) > 250 {
		t.Errorf("%d bytes", len(got))
	}
}

// A partLayout has fetched some bytes.
type partLayout int64

func (l partLayout) FetchedBytes() int64 { return int64(l) }
func (partLayout) Imported() error       { return nil }

// TestNeededBytes checks that a fetch does not begin if the disk has no space for a layer that is both fetched and unpacked. A fetch can
// continue if the disk has space only for the rest.
func TestNeededBytes(t *testing.T) {
	for _, tt := range []struct {
		sizes []int64
		l     fetchedLayout
		want  int64
	}{
		{nil, nil, 0},
		{[]int64{5, 20}, nil, 25},
		{[]int64{5, 20}, partLayout(0), 45},
		{[]int64{5, 20}, partLayout(15), 30},
		{[]int64{5, 20}, partLayout(90), 25}, // a whole tar
	} {
		if got := neededBytes(tt.sizes, tt.l); got != tt.want {
			t.Errorf("%v, %v: %d, not %d", tt.sizes, tt.l, got, tt.want)
		}
	}
}

// TestOlderFolder checks that the folder of an earlier version of islet, which lacks only the contents manifest, does not count as damaged:
// if the manifest cannot be stored, the bundle is still in use, and nothing is logged as a warning. A source does not send it again.
func TestOlderFolder(t *testing.T) {
	build := newWorld(t)
	one := build.bundle(1, nil)
	for name, file := range map[string]string{"older": manifestFile, "damaged": contentsFile} {
		w := newWorld(t)
		n := w.boot(nil)
		_, err := apply(n, one, false)
		w.must(err)
		keep(n)
		b := *n.now().Current
		w.must(os.Remove(filepath.Join(w.dir, foldersDir, folderName(b.Digest), file)))
		var logged bytes.Buffer
		n = w.boot(nil)
		n.c.Log = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelWarn}))
		w.noSpace = errors.New("no space")
		isOld := name == "older"
		if got, err := apply(n, one, false); got.InUse != isOld || errors.Is(err, w.noSpace) == isOld {
			t.Errorf("%s, no space: %+v, %v", name, got, err)
		}
		w.noSpace = nil
		if _, err := n.ApplyFollowed(t.Context(), one, feed.Seen{}); isOld != errors.Is(err, feed.ErrDone) || isOld == n.isComplete(t.Context(), b) {
			t.Errorf("%s, a source: %v", name, err)
		}
		if got, err := apply(n, one, false); err != nil || !got.InUse || !n.isComplete(t.Context(), b) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if isOld != (logged.Len() == 0) {
			t.Errorf("%s: %s", name, &logged)
		}
	}
}
