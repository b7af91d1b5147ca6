package oom

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/event"
)

// Config configures New.
type Config struct {
	Kernel func() (*os.File, error) // opens the kernel's log; if nil, /dev/kmsg is opened
	File   string                   // path of the file with the number of the next record; in the run directory
	Killed func(ago time.Duration)  // called for each kill; it must not block
	Events event.Sink
	Log    *slog.Logger
}

// A Watch reports out-of-memory kills.
type Watch struct {
	c     Config
	kills prometheus.Counter
}

// New returns a Watch. It starts no goroutine.
func New(c Config) *Watch {
	if c.Kernel == nil {
		c.Kernel = func() (*os.File, error) {
			return os.OpenFile("/dev/kmsg", os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		}
	}
	return &Watch{c, prometheus.NewCounter(prometheus.CounterOpts{Name: "islet_system_oom_kills_total",
		Help: "processes that the kernel killed because the machine had no memory left"})}
}

// Collectors returns the metric that counts the killed processes since the agent started.
func (w *Watch) Collectors() []prometheus.Collector { return []prometheus.Collector{w.kills} }

// A Kill describes a process that the kernel killed because the machine had run out of memory.
type Kill struct {
	Number uint64 // number of the record since boot
	PID    int
	Name   string        // name of the program, which the program itself may have set
	At     time.Duration // time since boot, by the kernel's clock
}

// maxRecord is the kernel's maximum length of a record (CONSOLE_EXT_LOG_MAX).
const maxRecord = 8192

// Run watches the kernel's log until ctx ends, and reports each process that the kernel has killed for lack of
// memory. It returns at once if the log cannot be read.
func (w *Watch) Run(ctx context.Context) error {
	f, err := w.c.Kernel()
	if err != nil {
		w.c.Log.Info("cannot read the kernel's log: out-of-memory kills are not reported", "error", err)
		<-ctx.Done()
		return ctx.Err()
	}
	defer f.Close()
	stop := context.AfterFunc(ctx, func() { f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	told, again := w.loadNext()
	if !again {
		told = skipExisting(f)
		w.saveNext(told)
	}
	buf := make([]byte, maxRecord)
	for {
		n, err := f.Read(buf)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINVAL): // the record was overwritten before it was read, or it is too long
			continue
		case err != nil:
			w.c.Log.Warn("reading the kernel's log failed: out-of-memory kills are no longer reported", "error", err)
			<-ctx.Done()
			return ctx.Err()
		}
		kill, ok := Parse(string(buf[:n]))
		if !ok || kill.Number < told {
			continue
		}
		told = kill.Number + 1
		w.saveNext(told)
		w.kills.Inc()
		w.c.Log.Error("the machine ran out of memory", "victim", kill.Name, "pid", kill.PID)
		w.c.Events.Node(v1.EventTypeWarning, "SystemOOM",
			fmt.Sprintf("System OOM encountered, victim process: %s, pid: %d", kill.Name, kill.PID))
		if w.c.Killed != nil {
			w.c.Killed(timeSince(kill.At))
		}
	}
}

// timeSince returns how long ago the kernel wrote a record, approximately. The clock of the log and the clocks that
// programs can read drift apart by at most a few seconds a day.
func timeSince(at time.Duration) time.Duration {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil {
		return 0
	}
	return max(time.Duration(now.Nano())-at, 0)
}

// skipExisting reads all existing records and returns the number of the next one.
func skipExisting(f *os.File) (next uint64) {
	c, err := f.SyscallConn()
	if err != nil {
		return 0
	}
	buf := make([]byte, maxRecord)
	_ = c.Control(func(fd uintptr) {
		for {
			n, err := unix.Read(int(fd), buf)
			switch {
			case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EINTR): // see Run
				continue
			case err != nil || n == 0: // EAGAIN means that there are no more records
				return
			}
			if _, number, _, ok := parseHead(string(buf[:n])); ok {
				next = number + 1
			}
		}
	})
	return next
}

// loadNext returns the number of the first record that was not handled. It returns false if this is unknown.
func (w *Watch) loadNext() (next uint64, known bool) {
	b, err := os.ReadFile(w.c.File)
	if err != nil {
		return 0, false
	}
	text, ok := strings.CutPrefix(string(b), recordPrefix)
	next, err = strconv.ParseUint(text, 10, 64)
	return next, ok && err == nil
}

// recordPrefix is written before the number in the file. Older versions wrote a time without a prefix.
const recordPrefix = "record "

func (w *Watch) saveNext(next uint64) {
	if err := os.WriteFile(w.c.File, strconv.AppendUint([]byte(recordPrefix), next, 10), 0o600); err != nil {
		w.c.Log.Warn("cannot store the position in the kernel's log", "error", err)
	}
}

// parseHead parses the head of a record: its priority, its number, and its time in microseconds.
func parseHead(record string) (priority, number uint64, at int64, ok bool) {
	head, _, ok := strings.Cut(record, ";")
	field := strings.Split(head, ",")
	if !ok || len(field) < 3 {
		return 0, 0, 0, false
	}
	priority, err := strconv.ParseUint(field[0], 10, 32)
	number, bad := strconv.ParseUint(field[1], 10, 64)
	at, late := strconv.ParseInt(field[2], 10, 64)
	return priority, number, at, errors.Join(err, bad, late) == nil
}

// Parse parses a record of the kernel's log, such as
//
//	3,1417,88120573,-;Out of memory: Killed process 4711 (java) total-vm:...
//
// It reports whether the record says that the kernel killed a process because the whole machine ran out of memory.
// https://www.kernel.org/doc/Documentation/ABI/testing/dev-kmsg
func Parse(record string) (Kill, bool) {
	priority, number, at, ok := parseHead(record)
	if !ok || priority>>3 != 0 || at < 0 || at > int64(1<<62/time.Microsecond) || number == math.MaxUint64 {
		return Kill{}, false
	}
	_, text, _ := strings.Cut(record, ";")
	text, _, _ = strings.Cut(text, "\n")
	// Newer kernels write "Killed". Only the beginning of the line is compared, because a name elsewhere in the
	// line may contain the same text.
	text, ok = strings.CutPrefix(text, "Out of memory: Kill")
	if !ok {
		return Kill{}, false
	}
	_, text, _ = strings.Cut(text, "process ")
	victim, text, _ := strings.Cut(text, " (")
	pid, err := strconv.ParseInt(victim, 10, 32)
	end := strings.LastIndex(text[:min(len(text), longestName)], ")")
	if err != nil || pid <= 0 || end < 0 {
		return Kill{}, false
	}
	return Kill{Number: number, PID: int(pid), Name: text[:end], At: time.Duration(at) * time.Microsecond}, true
}

// longestName is the maximum length of a program's name with the closing parenthesis. A name has up to 15 bytes, each
// of which the kernel may escape with four bytes.
const longestName = 15*4 + 1
