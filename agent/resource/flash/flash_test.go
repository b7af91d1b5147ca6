package flash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/islet-edge/islet/internal/eventtest"
)

func TestMain(m *testing.M) { os.Exit(eventtest.Main(m, "flash")) }

var noon = time.Date(2026, 11, 10, 12, 0, 0, 0, time.UTC)

func at(t time.Time) moment {
	return moment{At: t, Boot: "one", Booted: noon.Add(-time.Hour), Run: 1}
}

func TestAccount(t *testing.T) {
	var a account
	a.add(at(noon), Sample{Device: 1000, Agent: 300, Images: 200, Shims: 150, Logs: 50})
	if want := (Written{Device: 1000, Database: 100, Images: 200, Logs: 50, Pods: 100}); a.writtenOn(noon) != want || a.Total != want || want.Stack() != 450 {
		t.Errorf("first: %+v", a)
	}
	a.add(at(noon.Add(time.Hour)), Sample{Device: 1100, Agent: 310, Images: 200, Shims: 100, Logs: 40}) // a shim has exited
	if want := (Written{Device: 1100, Database: 110, Images: 200, Logs: 50, Pods: 100}); a.writtenOn(noon) != want {
		t.Errorf("a shim ended: %+v", a)
	}
	m := at(noon.Add(2 * time.Hour))
	m.Run = 2
	a.add(m, Sample{Device: 1200, Agent: 400, Images: 300, Shims: 100, Logs: 40}) // a new agent, which wrote more than its predecessor
	if want := (Written{Device: 1200, Database: 210, Images: 500, Logs: 50, Pods: 100}); a.writtenOn(noon) != want {
		t.Errorf("a new agent: %+v", a)
	}
	m.Boot, m.At, m.Booted = "two", noon.Add(36*time.Hour), noon.Add(6*time.Hour) // off until 18 h, running for 6 h, and then for a day
	a.add(m, Sample{Device: 500})
	if x, y := a.writtenOn(noon).Device, a.writtenOn(noon.Add(24*time.Hour)).Device; x != 1300 || y != 400 {
		t.Errorf("a reboot: %d, %d", x, y)
	}
	m.At = noon.AddDate(0, 0, 30)
	a.add(m, Sample{Device: 500 + 2850})
	if len(a.Days) != days || a.writtenOn(m.At.Add(-24*time.Hour)).Device < 99 || a.writtenOn(m.At.Add(-24*time.Hour)).Device > 101 ||
		a.Total.Device != 1700+2850 {
		t.Errorf("a month later: %+v", a)
	}
	m.At = noon // the clock is set back
	a.add(m, Sample{Device: 500 + 2850 + 7})
	if len(a.Days) != 1 || a.writtenOn(noon).Device != 7 {
		t.Errorf("the clock went back: %+v", a)
	}
}

// TestNoClock checks a board without a real-time clock. Its clock starts in 1970 and is set later. The stored days are kept. Bytes that
// were written before the clock was set count for the current day.
func TestNoClock(t *testing.T) {
	var a account
	a.add(at(noon.Add(-24*time.Hour)), Sample{Device: 100})
	a.add(at(noon), Sample{Device: 1100})
	yesterday, today := a.writtenOn(noon.Add(-24*time.Hour)).Device, a.writtenOn(noon).Device
	for boot := range 3 {
		old := time.Unix(20, 0)
		name := fmt.Sprint("boot ", boot)
		up := func(at time.Time, uptime time.Duration) moment {
			return moment{At: at, Boot: name, Booted: at.Add(-uptime), Run: int64(boot + 2)}
		}
		a.add(up(old, 20*time.Second), Sample{Device: 10})
		a.add(up(old.Add(10*time.Minute), 10*time.Minute+20*time.Second), Sample{Device: 20})
		if got := a.writtenOn(noon).Device; got != today {
			t.Errorf("%s, in 1970: %d today, not %d", name, got, today)
		}
		now := noon.Add(time.Duration(boot+1) * time.Hour) // the time comes from the network
		a.add(up(now, 20*time.Minute), Sample{Device: 50})
		today += 50
		if got := a.writtenOn(noon).Device; got != today || len(a.Days) != 2 || a.writtenOn(noon.Add(-24*time.Hour)).Device != yesterday {
			t.Errorf("%s: %d today, not %d; %+v", name, got, today, a.Days)
		}
	}
	far := at(noon.AddDate(20, 0, 0)) // the clock is far ahead until it is set
	far.Booted = far.At.Add(-2 * time.Hour)
	a.add(far, Sample{Device: 60})
	a.add(at(noon.Add(5*time.Hour)), Sample{Device: 70})
	if got := a.writtenOn(noon).Device; len(a.Days) != 2 || got != today+10 {
		t.Errorf("after a clock that was far ahead: %+v", a.Days)
	}
}

// TestSameDay checks boards whose clock starts on the same day at each boot and is never set. A day of the account must not have the bytes
// of more than a day of running time. The bytes of a day of a board with a right clock stay together, also if the clock is slowed down.
func TestSameDay(t *testing.T) {
	const each = 100 // bytes in an hour
	for name, start := range map[string]time.Time{"1970": time.Unix(20, 0), "the time of a file": noon} {
		var a account
		most, hours := uint64(0), 0
		for boot := range 60 {
			up := time.Duration(boot%4+1) * time.Hour
			hours += boot%4 + 1
			for at := 20 * time.Second; at <= up; at += 10 * time.Minute {
				written := uint64(each * at.Hours())
				m := moment{At: start.Add(at), Boot: fmt.Sprint(boot), Booted: start, Run: int64(boot)}
				a.add(m, Sample{Device: written})
			}
			most = max(most, a.writtenOn(start).Device)
		}
		if len(a.Days) != 1 || most > each*25 || most < each*20 || a.Total.Device < uint64(each*(hours-30)) {
			t.Errorf("%s: at most %d bytes on a day, %d in all in %d hours: %+v", name, most, a.Total.Device, hours, a.Days)
		}
	}
	var a account
	midnight := noon.Truncate(24 * time.Hour)
	m := moment{Boot: "one", Booted: midnight, Run: 1}
	for step := range 145 {
		m.At = midnight.Add(time.Duration(step) * 10 * time.Minute).Add(-time.Second)
		m.Booted = midnight.Add(-time.Duration(step) * 10 * time.Second) // 24 minutes a day
		a.add(m, Sample{Device: uint64(step)})
	}
	if got := a.writtenOn(midnight).Device; got != 144 {
		t.Errorf("%d bytes: %+v", got, a.Days)
	}
}

// FuzzAccount checks an account with random counters and clocks. Its days must be few, sorted and not far in the future, and must contain
// the current day. Their sums must not exceed the totals.
func FuzzAccount(f *testing.F) {
	f.Add(uint64(1), uint64(2))
	f.Fuzz(func(t *testing.T, x, y uint64) {
		r := rand.New(rand.NewPCG(x, y))
		var a account
		m := at(noon)
		for range 20 {
			n := func() uint64 { return r.Uint64N(1 << 40) }
			m.At = m.At.Add(time.Duration(r.Int64N(int64(60*24*time.Hour)) - int64(10*24*time.Hour)))
			if r.IntN(4) == 0 {
				m.Boot, m.Booted = fmt.Sprint(r.Uint64()), m.At.Add(-time.Duration(r.Int64N(int64(1000*time.Hour))-int64(100*time.Hour)))
			}
			m.Run += r.Int64N(2)
			a.add(m, Sample{n(), n(), n(), n(), n()})
			var sum Written
			for i, d := range a.Days {
				sum = sum.addTo(d.Written)
				if i > 0 && a.Days[i-1].Day >= d.Day || d.Day > m.At.AddDate(0, 0, days).Format(day) {
					t.Fatalf("days %+v at %v", a.Days, m.At)
				}
			}
			if !slices.ContainsFunc(a.Days, func(d dayTotal) bool { return d.Day == m.At.Format(day) }) || len(a.Days) > days ||
				sum.Device > a.Total.Device || sum.Pods > a.Total.Pods || sum.Database > a.Total.Database {
				t.Fatalf("%+v", a)
			}
			text, err := json.Marshal(&a)
			if err != nil || len(text) > 1500 {
				t.Fatalf("%d bytes, %v", len(text), err)
			}
		}
	})
}

// A board is a fake machine with counters of written bytes.
type board struct {
	Sample
	reads, writes int
	meta          map[string]string
	events        []string
	broken        error
}

func (b *board) Meta(_ context.Context, key string) (string, bool, error) {
	v, ok := b.meta[key]
	return v, ok, b.broken
}

func (b *board) SetMeta(_ context.Context, key, value string) error {
	b.writes++
	if b.meta == nil {
		b.meta = map[string]string{}
	}
	b.meta[key] = value
	return b.broken
}

func (b *board) record(e eventtest.Event) { b.events = append(b.events, e.Message) }

func (b *board) flash(budget uint64) *Flash {
	return New(Config{Budget: budget, Meta: b, Events: eventtest.Sink(b.record), Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Sample: func() (Sample, string) { b.reads++; return b.Sample, "/dev/sd" },
		Life:   func() moment { return moment{At: time.Now(), Boot: "one", Booted: time.Now().Add(-time.Hour), Run: 1} },
	})
}

func run(t *testing.T, f *Flash, d time.Duration) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), d)
	defer stop()
	if err := f.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// TestIdle checks that an agent without a budget reads and writes nothing until the figures are requested. It then reads them at most once
// a minute, and stores them.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &board{}
		f := b.flash(0)
		run(t, f, 74*time.Hour)
		if b.reads+b.writes > 0 {
			t.Errorf("%d reads, %d writes", b.reads, b.writes)
		}
		b.Device = 1 << 20
		for range 3 {
			if got := f.Figures(t.Context()); got.Today.Device != 1<<20 || got.Device != "/dev/sd" || got.Exceeded {
				t.Errorf("%+v", got)
			}
		}
		if b.reads != 1 {
			t.Errorf("%d reads", b.reads)
		}
		run(t, f, time.Second)
		if b.writes != 1 {
			t.Errorf("%d writes", b.writes)
		}
		if got := b.flash(0).Figures(t.Context()); got.Today.Device != 1<<20 {
			t.Errorf("after a restart: %+v", got)
		}
	})
}

// TestKilled checks that bytes that were written after the first measurement are counted even if the agent was killed. They count for the
// time since that measurement, not for the time since the boot.
func TestKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the time is midnight, an hour after the boot
		b := &board{}
		b.flash(0).Figures(t.Context())
		time.Sleep(time.Second)
		b.Shims, b.Logs = 5<<20, 5<<20
		if got := b.flash(0).Figures(t.Context()); got.Today.Logs != 5<<20 || got.Yesterday.Logs != 0 || b.writes != 1 {
			t.Errorf("%+v, %d writes", got, b.writes)
		}
	})
}

// TestBudget checks that an exceeded budget is reported once a day. Deferrable work then waits until the end of the day. The figures are
// stored only a few times a week.
func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the time is midnight
		b := &board{}
		f := b.flash(10 << 20)
		run(t, f, time.Hour)
		if len(b.events) > 0 || f.BudgetExceeded() {
			t.Error(b.events)
		}
		b.Agent, b.Images, b.Shims, b.Logs = 20<<20, 5<<20, 3<<20, 1<<20
		run(t, f, time.Hour)
		if len(b.events) != 1 || !f.BudgetExceeded() || !strings.Contains(b.events[0],
			"23 MiB were written to the disk today, more than the budget of 10 MiB: database 15 MiB, images 5120 KiB, logs 1024 KiB, pods 2048 KiB") {
			t.Error(b.events)
		}
		time.Sleep(23 * time.Hour)
		if f.BudgetExceeded() {
			t.Error("the next day")
		}
		b.writes = 0
		run(t, f, 7*24*time.Hour)
		if len(b.events) != 1 || f.BudgetExceeded() || b.writes > 16 {
			t.Errorf("%q, %d writes", b.events, b.writes)
		}
		if n := len(b.meta[metaKey]); n > 700 {
			t.Errorf("%d bytes are stored", n)
		}
	})
}

// TestRead checks that the bytes that this process has written are counted.
func TestRead(t *testing.T) {
	dir, err := os.MkdirTemp(".", "written")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	f := New(Config{Dir: dir, Shims: dir, Pods: "/none", Images: func() uint64 { return 1 << 10 }, Meta: &board{}, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	before, _ := f.takeSample()
	file, err := os.Create(filepath.Join(dir, "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Write(make([]byte, 4<<20)); err != nil {
		t.Fatal(err)
	}
	if err := file.Sync(); err != nil {
		t.Fatal(err)
	}
	after, device := f.takeSample()
	if got := after.Agent - before.Agent; got < 4<<20 {
		t.Errorf("%d bytes of 4 MiB", got)
	}
	if device != "" && after.Device-before.Device < 4<<20 {
		t.Errorf("%d bytes on %s", after.Device-before.Device, device)
	}
	t.Logf("device %q, %+v", device, after)
	if m := f.c.Life(); m.Boot == "" || !m.Booted.Before(m.At) {
		t.Errorf("%+v", m)
	}
	if n := len(f.Collectors()); n != 1 {
		t.Error(n)
	}
}
