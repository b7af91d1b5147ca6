package flash

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/bootid"
	"github.com/islet-edge/islet/metrics/cgroup"
	"github.com/islet-edge/islet/metrics/disk"
	"github.com/islet-edge/islet/metrics/process"
)

const (
	metaKey    = "flash"          // of the account, in the store
	fresh      = time.Minute      // how old figures may be to be given again
	lookEvery  = 10 * time.Minute // with a budget
	storeEvery = 12 * time.Hour
	endTimeout = 5 * time.Second // of storing at the end
)

// Meta keeps a value. *store.Store is one.
type Meta interface {
	Meta(ctx context.Context, key string) (value string, known bool, err error)
	SetMeta(ctx context.Context, key, value string) error
}

// Events takes those of the node. *outbox.Events is one.
type Events interface {
	Node(eventType, reason, message string)
}

// Config is what New needs.
type Config struct {
	Dir    string        // whose disk it is about
	Shims  string        // directory of the shims' program
	Pods   string        // cgroup of all pods, from the root of the hierarchies
	Images func() uint64 // bytes that pulls and imports wrote since the agent started
	Budget uint64        // bytes a day; 0: none
	Meta   Meta
	Events Events
	Now    func() time.Time
	Log    *slog.Logger

	// Sample and Life are for tests. Nil: of this machine.
	Sample func() (Sample, string)
	Life   func() moment
}

// A Flash measures. Its methods may be called at once.
type Flash struct {
	c Config

	mu      sync.Mutex
	account *account // nil: not loaded yet
	device  string
	pods    wrote
	last    time.Time // of the last sample in this process, with a monotonic reading
	stored  time.Time // when the account was, likewise; zero: not by this process
	dirty   bool

	exceeded atomic.Pointer[string] // the day on which the budget was, as far as this process knows; nil: none
}

// New reads nothing.
func New(c Config) *Flash {
	f := &Flash{c: c}
	if f.c.Sample == nil {
		f.c.Sample = f.read
	}
	if f.c.Life == nil {
		started := time.Now().UnixNano()
		f.c.Life = func() moment { return life(c.Now(), started) }
	}
	return f
}

// Run watches the budget until ctx ends, if there is one. At the end it stores the account.
func (f *Flash) Run(ctx context.Context) error {
	defer f.end()
	if f.c.Budget == 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		f.look(ctx, 0)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// end stores what was read and is not stored.
func (f *Flash) end() {
	ctx, stop := context.WithTimeout(context.Background(), endTimeout)
	defer stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dirty {
		f.store(ctx)
	}
}

// look takes a sample unless the last one is young enough, and gives the account.
func (f *Flash) look(ctx context.Context, age time.Duration) account {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.account == nil {
		f.account = f.load(ctx)
	}
	if now := time.Now(); f.last.IsZero() || now.Sub(f.last) >= age {
		f.last = now
		m, was, boot := f.c.Life(), f.account.At, f.account.Boot
		var s Sample
		s, f.device = f.c.Sample()
		f.account.add(m, s)
		f.dirty = true
		if f.stored.IsZero() {
			f.stored = now
		}
		// Without the first one of a boot an agent that is killed would leave all to be spread over the time since it.
		if boot != m.Boot || now.Sub(f.stored) >= storeEvery || !was.IsZero() && was.UTC().Format(day) != m.At.UTC().Format(day) {
			f.store(ctx)
		}
		f.judge(m.At)
	}
	a := *f.account
	a.Days = append([]dayOf(nil), a.Days...)
	return a
}

// judge tells once a day that the budget is exceeded. The caller holds mu.
func (f *Flash) judge(now time.Time) {
	today, name := f.account.on(now), now.UTC().Format(day)
	switch {
	case f.c.Budget == 0 || today.Stack() <= f.c.Budget:
		f.exceeded.Store(nil)
	case !f.exceededOn(name):
		f.exceeded.Store(&name)
		f.c.Events.Node(v1.EventTypeWarning, "FlashBudgetExceeded", fmt.Sprintf("%s were written to the disk today, more than the budget of %s: database %s, images %s, logs %s, pods %s. What can wait does until the day is over",
			size(today.Stack()), size(f.c.Budget), size(today.Database), size(today.Images), size(today.Logs), size(today.Pods)))
	}
}

func size(n uint64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}

// Exceeded reports whether more was written today than the budget allows. It reads nothing,
// and waits for nobody who does.
func (f *Flash) Exceeded() bool { return f.exceededOn(f.c.Now().UTC().Format(day)) }

func (f *Flash) exceededOn(name string) bool {
	on := f.exceeded.Load()
	return on != nil && *on == name
}

// Figures are for people.
func (f *Flash) Figures(ctx context.Context) *api.Flash {
	a := f.look(ctx, fresh)
	now := f.c.Now()
	out := &api.Flash{Budget: f.c.Budget, Exceeded: f.Exceeded(), Today: show(a.on(now)), Yesterday: show(a.on(now.Add(-24 * time.Hour)))}
	f.mu.Lock()
	out.Device = f.device
	f.mu.Unlock()
	var sum Written
	for i, d := range a.Days {
		if i > 0 && d.Day < now.UTC().Format(day) { // the first may have begun at noon
			sum, out.Days = sum.plus(d.Written), out.Days+1
		}
	}
	if out.Days > 0 {
		out.Mean = show(sum.part(1, time.Duration(out.Days)))
	}
	return out
}

func show(w Written) api.Written {
	return api.Written{Device: w.Device, Stack: w.Stack(), Database: w.Database, Images: w.Images, Logs: w.Logs, Pods: w.Pods}
}

func (f *Flash) load(ctx context.Context) *account {
	a := &account{}
	text, known, err := f.c.Meta.Meta(ctx, metaKey)
	if err == nil && known {
		err = json.Unmarshal([]byte(text), a)
	}
	if err != nil {
		f.c.Log.Warn("what was written to the disk before is not known", "error", err)
		return &account{}
	}
	return a
}

// store writes the account. The caller holds mu.
func (f *Flash) store(ctx context.Context) {
	text, err := json.Marshal(f.account)
	if err == nil {
		err = f.c.Meta.SetMeta(ctx, metaKey, string(text))
	}
	if err != nil {
		f.c.Log.Warn("what was written to the disk is not stored", "error", err)
		return
	}
	f.stored, f.dirty = time.Now(), false
}

// read reads this machine. The name of the device is empty where there is none. The caller holds mu.
func (f *Flash) read() (s Sample, device string) {
	number, err := disk.NumberOf(f.c.Dir)
	if err == nil {
		for _, d := range disk.Devices("/proc") {
			if d.Number == number {
				s.Device, device = d.SectorsWritten*512, d.Name
			}
		}
	}
	var p process.Reader
	s.Agent, s.Images = process.SelfWritten(), f.c.Images()
	for _, pid := range p.Running(f.c.Shims) {
		s.Shims += p.Written(pid)
		s.Logs += p.OwnWritten(pid)
	}
	s.Shims += f.pods.now(cgroup.NewReader(cgroup.Mountpoint), p, f.c.Pods, maxDepth)
	return s, device
}

func life(now time.Time, run int64) moment {
	m := moment{At: now, Booted: now, Run: run, Boot: bootid.Kernel(os.DirFS("/"))}
	var up unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &up) == nil {
		m.Booted = now.Add(-time.Duration(up.Nano()))
	}
	return m
}

// Collectors give what was written since the account was opened.
func (f *Flash) Collectors() []prometheus.Collector { return []prometheus.Collector{collector{f}} }

type collector struct{ f *Flash }

var (
	byCause  = prometheus.NewDesc("islet_flash_written_bytes_total", "what islet and its pods wrote to disks, over restarts, by what: database, images, logs, pods", []string{"cause"}, nil)
	byDevice = prometheus.NewDesc("islet_flash_device_written_bytes_total", "what was written to the disk of the state directory, by anybody, over restarts", nil, nil)
	budget   = prometheus.NewDesc("islet_flash_budget_bytes", "what may be written a day; 0: no budget", nil, nil)
)

// Describe implements prometheus.Collector.
func (c collector) Describe(out chan<- *prometheus.Desc) {
	out <- byCause
	out <- byDevice
	out <- budget
}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	w := c.f.look(context.Background(), fresh).Total
	add := func(d *prometheus.Desc, kind prometheus.ValueType, n uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, kind, float64(n), labels...)
	}
	add(byCause, prometheus.CounterValue, w.Database, "database")
	add(byCause, prometheus.CounterValue, w.Images, "images")
	add(byCause, prometheus.CounterValue, w.Logs, "logs")
	add(byCause, prometheus.CounterValue, w.Pods, "pods")
	add(byDevice, prometheus.CounterValue, w.Device)
	add(budget, prometheus.GaugeValue, c.f.c.Budget)
}
