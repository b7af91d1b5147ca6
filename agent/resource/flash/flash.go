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
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/bootid"
	"github.com/islet-edge/islet/internal/clock"
	"github.com/islet-edge/islet/internal/event"
	"github.com/islet-edge/islet/metrics/cgroup"
	"github.com/islet-edge/islet/metrics/disk"
	"github.com/islet-edge/islet/metrics/process"
)

const (
	metaKey        = "flash"          // key of the account in the store
	maxAge         = time.Minute      // maximum age of figures that are reused
	sampleInterval = 10 * time.Minute // interval of samples if there is a budget
	storeEvery     = 12 * time.Hour
	endTimeout     = 5 * time.Second // maximum time for storing the account when the agent ends
)

// Meta stores values by key. *store.Store implements it.
type Meta interface {
	Meta(ctx context.Context, key string) (value string, known bool, err error)
	SetMeta(ctx context.Context, key, value string) error
}

// Config configures New.
type Config struct {
	Dir    string        // a directory on the disk that is measured
	Shims  string        // directory of the shims' executable
	Pods   string        // cgroup of all pods
	Images func() uint64 // number of bytes that pulls and imports have written since the agent started
	Budget uint64        // bytes per day; 0 means that there is no budget
	Meta   Meta
	Events event.Sink
	Now    func() time.Time
	Log    *slog.Logger

	// Sample and Life are set only by tests. If they are nil, this machine is measured.
	Sample func() (Sample, string)
	Life   func() moment
}

// A Flash measures how many bytes are written to the disk. Its methods may be called concurrently.
type Flash struct {
	c Config

	mu      sync.Mutex
	account *account // nil until it is loaded
	device  string
	pods    cgroupWrites
	last    time.Time // time of the last sample of this process, with a monotonic clock reading
	stored  time.Time // when this process last stored the account, with a monotonic clock reading; zero if it never did
	dirty   bool

	exceededDay atomic.Pointer[string] // last day on which this process found that the budget was exceeded, or nil
}

// New returns a Flash. It reads no file.
func New(c Config) *Flash {
	f := &Flash{c: c}
	if f.c.Sample == nil {
		f.c.Sample = f.takeSample
	}
	if f.c.Life == nil {
		started := time.Now().UnixNano()
		f.c.Life = func() moment { return currentMoment(c.Now(), started) }
	}
	return f
}

// Run takes samples and checks the budget until ctx ends. Without a budget, it only waits until ctx ends. In both
// cases it stores the account at the end.
func (f *Flash) Run(ctx context.Context) error {
	defer f.storeAtEnd()
	if f.c.Budget == 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	tick := time.NewTicker(sampleInterval)
	defer tick.Stop()
	for {
		f.currentAccount(ctx, 0)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// storeAtEnd stores the account if it has changed.
func (f *Flash) storeAtEnd() {
	ctx, stop := context.WithTimeout(context.Background(), endTimeout)
	defer stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dirty {
		f.store(ctx)
	}
}

// currentAccount returns the account. It takes a new sample if the last one is older than the given age.
func (f *Flash) currentAccount(ctx context.Context, age time.Duration) account {
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
		// The first sample of a boot is stored at once. Without this, the writes of an agent that is killed later
		// would be spread over the whole time since the boot.
		if boot != m.Boot || now.Sub(f.stored) >= storeEvery || !was.IsZero() && was.UTC().Format(day) != m.At.UTC().Format(day) {
			f.store(ctx)
		}
		f.checkBudget(m.At)
	}
	a := *f.account
	a.Days = append([]dayTotal(nil), a.Days...)
	return a
}

// checkBudget records an event when the budget is exceeded, at most once a day. The caller holds mu.
func (f *Flash) checkBudget(now time.Time) {
	today, name := f.account.writtenOn(now), now.UTC().Format(day)
	switch {
	case f.c.Budget == 0 || today.Stack() <= f.c.Budget:
		f.exceededDay.Store(nil)
	case !f.exceededOn(name):
		f.exceededDay.Store(&name)
		f.c.Events.Node(v1.EventTypeWarning, "FlashBudgetExceeded",
			fmt.Sprintf("%s were written to the disk today, more than the budget of %s: "+
				"database %s, images %s, logs %s, pods %s. Work that can wait is postponed until the day is over",
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

// BudgetExceeded reports whether more bytes were written today than the budget allows. It reads no file and never blocks.
func (f *Flash) BudgetExceeded() bool { return f.exceededOn(f.c.Now().UTC().Format(day)) }

func (f *Flash) exceededOn(name string) bool {
	on := f.exceededDay.Load()
	return on != nil && *on == name
}

// Figures returns the figures for the status.
func (f *Flash) Figures(ctx context.Context) *api.Flash {
	a := f.currentAccount(ctx, maxAge)
	now := f.c.Now()
	out := &api.Flash{
		Budget: f.c.Budget, Exceeded: f.BudgetExceeded(), Today: apiWritten(a.writtenOn(now)),
		Yesterday: apiWritten(a.writtenOn(now.Add(-24 * time.Hour))),
	}
	f.mu.Lock()
	out.Device = f.device
	f.mu.Unlock()
	var sum Written
	for i, d := range a.Days {
		if i > 0 && d.Day < now.UTC().Format(day) { // the first day may be incomplete
			sum, out.Days = sum.addTo(d.Written), out.Days+1
		}
	}
	if out.Days > 0 {
		out.Mean = apiWritten(sum.shareOf(1, time.Duration(out.Days)))
	}
	return out
}

func apiWritten(w Written) api.Written {
	return api.Written{Device: w.Device, Stack: w.Stack(), Database: w.Database, Images: w.Images, Logs: w.Logs, Pods: w.Pods}
}

func (f *Flash) load(ctx context.Context) *account {
	a := &account{}
	text, known, err := f.c.Meta.Meta(ctx, metaKey)
	if err == nil && known {
		err = json.Unmarshal([]byte(text), a)
	}
	if err != nil {
		f.c.Log.Warn("cannot load the account of disk writes", "error", err)
		return &account{}
	}
	return a
}

// store stores the account. The caller holds mu.
func (f *Flash) store(ctx context.Context) {
	text, err := json.Marshal(f.account)
	if err == nil {
		err = f.c.Meta.SetMeta(ctx, metaKey, string(text))
	}
	if err != nil {
		f.c.Log.Warn("cannot store the account of disk writes", "error", err)
		return
	}
	f.stored, f.dirty = time.Now(), false
}

// takeSample takes a sample of this machine. It also returns the name of the disk, or "" if the state directory is not on a
// block device. The caller holds mu.
func (f *Flash) takeSample() (s Sample, device string) {
	number, err := disk.DeviceNumber(f.c.Dir)
	if err == nil {
		for _, d := range disk.Devices("/proc") {
			if d.Number == number {
				s.Device, device = d.SectorsWritten*512, d.Name
			}
		}
	}
	var p process.Reader
	s.Agent, s.Images = process.SelfWritten(), f.c.Images()
	for _, pid := range p.RunningFrom(f.c.Shims) {
		s.Shims += p.WrittenBytes(pid)
		s.Logs += p.OwnWritten(pid)
	}
	s.Shims += f.pods.update(cgroup.NewReader(cgroup.Mountpoint), p, f.c.Pods, maxDepth)
	return s, device
}

func currentMoment(now time.Time, run int64) moment {
	m := moment{At: now, Booted: now, Run: run, Boot: bootid.ReadKernel(os.DirFS("/"))}
	if up, ok := clock.Uptime(); ok {
		m.Booted = now.Add(-up)
	}
	return m
}

// Collectors returns the metrics of the bytes written since the account was opened.
func (f *Flash) Collectors() []prometheus.Collector { return []prometheus.Collector{collector{f}} }

type collector struct{ f *Flash }

var (
	byCause = prometheus.NewDesc("islet_flash_written_bytes_total",
		"bytes that islet and its pods wrote to disks, also before restarts, by cause: database, images, logs, pods",
		[]string{"cause"}, nil)
	byDevice = prometheus.NewDesc("islet_flash_device_written_bytes_total",
		"bytes that any process wrote to the disk of the state directory, also before restarts", nil, nil)
	budget = prometheus.NewDesc("islet_flash_budget_bytes", "bytes that may be written a day; 0 if there is no budget", nil, nil)
)

// Describe implements prometheus.Collector.
func (c collector) Describe(out chan<- *prometheus.Desc) {
	out <- byCause
	out <- byDevice
	out <- budget
}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	w := c.f.currentAccount(context.Background(), maxAge).Total
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
