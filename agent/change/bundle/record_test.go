package bundle

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
)

// TestRecord checks the states of a node: after each step, which bundles are in force, current and previous, which numbers are refused, and
// which bundles are not tried again.
func TestRecord(t *testing.T) {
	now := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	b := func(number int64, c string) Bundle { return Bundle{"kiosk", number, someDigest(c)} }
	one, two, three := b(1, "1"), b(2, "2"), b(3, "3")
	begin := func(b Bundle) func(*Record) error {
		return func(r *Record) error { r.Begin(Trial{Bundle: b}, nil, nil, now); return nil }
	}
	keep := func(r *Record) error { r.Keep(now); return nil }
	fail := func(r *Record) error { r.Fail("bad", Failed, now); return nil }
	start := func(r *Record) error { r.Start(now); return nil }
	revert := func(r *Record) error { return r.Revert(now) }
	id := func(b *Bundle) int64 {
		if b == nil {
			return 0
		}
		return b.Number
	}
	for name, c := range map[string]struct {
		steps                    []func(*Record) error
		force, current, previous int64
		highest                  int64
		failed                   []Bundle
		result                   string
		err                      string // of the last step
	}{
		"nothing":                  {},
		"a trial":                  {steps: []func(*Record) error{begin(one)}, force: 1, highest: 1},
		"kept":                     {steps: []func(*Record) error{begin(one), keep}, force: 1, current: 1, highest: 1, result: Kept},
		"the first fails":          {steps: []func(*Record) error{begin(one), fail}, highest: 1, failed: []Bundle{one}, result: Failed},
		"a second trial":           {steps: []func(*Record) error{begin(one), keep, begin(two)}, force: 2, current: 1, highest: 2, result: Kept},
		"the second is kept":       {steps: []func(*Record) error{begin(one), keep, begin(two), keep}, force: 2, current: 2, previous: 1, highest: 2, result: Kept},
		"the second fails":         {steps: []func(*Record) error{begin(one), keep, begin(two), fail}, force: 1, current: 1, highest: 2, failed: []Bundle{two}, result: Failed},
		"a failed one again":       {steps: []func(*Record) error{begin(one), keep, begin(two), fail, begin(two)}, force: 2, current: 1, highest: 2, result: Failed},
		"the trial is reverted":    {steps: []func(*Record) error{begin(one), keep, begin(two), revert}, force: 1, current: 1, highest: 2, failed: []Bundle{two}, result: Reverted},
		"back to the one before":   {steps: []func(*Record) error{begin(one), keep, begin(two), keep, revert}, force: 1, current: 1, highest: 2, failed: []Bundle{two}, result: Reverted},
		"back twice":               {steps: []func(*Record) error{begin(one), keep, begin(two), keep, revert, revert}, force: 1, current: 1, highest: 2, failed: []Bundle{two}, result: Reverted, err: "no bundle was in use before kiosk number 1"},
		"nothing to revert":        {steps: []func(*Record) error{revert}, err: "no bundle is in use"},
		"an older one keeps":       {steps: []func(*Record) error{begin(three), keep, begin(one), keep}, force: 1, current: 1, previous: 3, highest: 3, result: Kept},
		"three starts":             {steps: []func(*Record) error{begin(one), start, start, start}, force: 1, highest: 1},
		"four starts":              {steps: []func(*Record) error{begin(one), start, start, start, start}, highest: 1, failed: []Bundle{one}, result: Failed},
		"a start without a trial":  {steps: []func(*Record) error{begin(one), keep, start}, force: 1, current: 1, highest: 1, result: Kept},
		"the trial after a fail":   {steps: []func(*Record) error{begin(one), fail, begin(two), keep}, force: 2, current: 2, highest: 2, failed: []Bundle{one}, result: Kept},
		"the third one keeps only": {steps: []func(*Record) error{begin(one), keep, begin(two), keep, begin(three), keep}, force: 3, current: 3, previous: 2, highest: 3, result: Kept},
	} {
		r := &Record{}
		var err error
		for i, s := range c.steps {
			if err = s(r); err != nil && i < len(c.steps)-1 {
				t.Errorf("%s: %v", name, err)
			}
		}
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, want %q", name, err, c.err)
		}
		if id(r.InForce()) != c.force || id(r.Current) != c.current || id(r.Previous) != c.previous || r.Highest["kiosk"] != c.highest {
			t.Errorf("%s: in force %v, current %v, previous %v, highest %v", name, r.InForce(), r.Current, r.Previous, r.Highest)
		}
		for _, b := range []Bundle{one, two, three} {
			if r.HasFailed(b.Digest) != slices.Contains(c.failed, b) {
				t.Errorf("%s: failed %v", name, r.Failed)
			}
		}
		if result := r.Last; result == nil && c.result != "" || result != nil && result.Result != c.result {
			t.Errorf("%s: %+v", name, r.Last)
		}
	}
}

// TestStarting checks for how long the pods of a failed trial may still be starting. They are not starting for years if the clock was ahead
// when the trial failed.
func TestStarting(t *testing.T) {
	now := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	for ago, want := range map[time.Duration]int{
		0: 1, time.Hour - 1: 1, time.Hour: 0, -time.Minute: 1, -50 * 365 * 24 * time.Hour: 0,
	} {
		r := Record{}
		r.Begin(Trial{Bundle: Bundle{"kiosk", 5, someDigest("5")}, Must: []string{"default/web"}}, nil, nil, now.Add(-ago))
		r.Fail("bad", Failed, now.Add(-ago))
		if got := r.Starting(now, time.Hour); len(got) != want {
			t.Errorf("%v ago: %q", ago, got)
		}
	}
}

// TestCheck checks which bundles a person can apply in which state.
func TestCheck(t *testing.T) {
	now := time.Now()
	five := Bundle{"kiosk", 5, someDigest("5")}
	kept := Record{}
	kept.Begin(Trial{Bundle: five}, nil, nil, now)
	tried := kept
	kept.Keep(now)
	for name, c := range map[string]struct {
		r     Record
		b     Bundle
		older bool
		want  error
	}{
		"the first":                 {Record{}, five, false, nil},
		"a newer one":               {kept, Bundle{"kiosk", 6, someDigest("6")}, false, nil},
		"another with its number":   {kept, Bundle{"kiosk", 5, someDigest("6")}, false, nil},
		"an older one":              {kept, Bundle{"kiosk", 4, someDigest("4")}, false, ErrOlder},
		"an older one on purpose":   {kept, Bundle{"kiosk", 4, someDigest("4")}, true, nil},
		"a low number, other name":  {kept, Bundle{"lamp", 1, someDigest("4")}, false, nil},
		"the one in use":            {kept, five, true, ErrInUse},
		"the one on trial":          {tried, five, false, ErrInUse},
		"another one in a trial":    {tried, Bundle{"kiosk", 6, someDigest("6")}, false, ErrTrial},
		"an older one during trial": {tried, Bundle{"kiosk", 4, someDigest("6")}, true, ErrTrial},
	} {
		if err := c.r.Check(c.b, c.older); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// TestRecordFile checks that a record is the same after it was stored, and that one that cannot be used is an error.
func TestRecordFile(t *testing.T) {
	dir := t.TempDir()
	if _, found, err := load(dir); found || err != nil {
		t.Error(found, err)
	}
	now := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	r := Record{}
	r.Begin(Trial{Bundle: Bundle{"kiosk", 5, someDigest("5")}, Must: []string{"default/web"}}, []string{"a@b"}, nil, now)
	r.Keep(now)
	r.Begin(Trial{Bundle: Bundle{"kiosk", 6, someDigest("6")}}, nil, nil, now)
	r.Fail("bad", Failed, now)
	if err := r.save(dir); err != nil {
		t.Fatal(err)
	}
	again, found, err := load(dir)
	r.Format = recordFormat
	a, _ := json.Marshal(r)
	b, _ := json.Marshal(again)
	if !found || err != nil || string(a) != string(b) {
		t.Errorf("%v %v\n%s\n%s", found, err, a, b)
	}
	for name, text := range map[string]string{
		"half":           string(a[:len(a)/2]),
		"empty":          "",
		"another format": `{"format": 2}`,
		"a path":         `{"format": 1, "current": {"name": "x", "number": 1, "digest": "../../etc"}}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, File), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, found, err := load(dir); !found || err == nil || !strings.Contains(err.Error(), "restore the file") {
			t.Errorf("%s: %v, %v", name, found, err)
		}
	}
}

// TestUnrequested checks which bundles a node tries without a request: only numbers that it has never tried.
func TestUnrequested(t *testing.T) {
	bundle := func(name string, number int64, c string) Bundle { return Bundle{name, number, someDigest(c)} }
	r := Record{Current: new(bundle("kiosk", 4, "4")), Highest: map[string]int64{"kiosk": 5}, Failed: []digest.Digest{someDigest("5"), someDigest("a")}}
	for _, c := range []struct {
		b    Bundle
		want error
	}{
		{bundle("kiosk", 3, "3"), ErrOlder},
		{bundle("kiosk", 4, "4"), ErrInUse},
		{bundle("kiosk", 5, "5"), ErrTried}, // it has failed or was reverted
		{bundle("kiosk", 5, "6"), ErrTried}, // another one with its number
		{bundle("kiosk", 6, "a"), ErrTried},
		{bundle("kiosk", 6, "6"), nil},
		{bundle("other", 1, "1"), nil},
	} {
		if err := unrequested(&r, &r, c.b); !errors.Is(err, c.want) {
			t.Errorf("%v: %v, want %v", c.b, err, c.want)
		}
	}
	own := r
	own.Highest = map[string]int64{"kiosk": 4} // a power cut came before the record of number 5
	if err := unrequested(&own, &r, bundle("kiosk", 5, "6")); err != nil {
		t.Error(err)
	}
	restored := Record{} // a backup has put what the node has seen into the database
	restored.raise(seen{Highest: r.Highest, Failed: r.Failed})
	if err := unrequested(&Record{}, &restored, bundle("kiosk", 5, "5")); !errors.Is(err, ErrTried) {
		t.Errorf("a failed bundle after a restore: %v", err)
	}
	if restored.raise(seen{Failed: r.Failed}); len(restored.Failed) != len(r.Failed) {
		t.Errorf("failed: %v", restored.Failed)
	}
	r.Trial = &Trial{Bundle: bundle("kiosk", 5, "5")}
	if err := unrequested(&r, &r, bundle("kiosk", 6, "6")); !errors.Is(err, ErrTrial) {
		t.Error(err)
	}
}
