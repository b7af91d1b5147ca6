package oom

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/event"
	"github.com/islet-edge/islet/internal/eventtest"
)

func TestMain(m *testing.M) { os.Exit(eventtest.Main(m, "oom")) }

func TestParse(t *testing.T) {
	for name, c := range map[string]struct {
		record string
		want   Kill
	}{
		"now":                     {"3,1417,88120573,-;Out of memory: Killed process 4711 (java) total-vm:1kB, anon-rss:2kB, UID:0 pgtables:3kB oom_score_adj:0\n SUBSYSTEM=x\n", Kill{1417, 4711, "java", 88120573 * time.Microsecond}},
		"before 5.0":              {"3,1,2,-;Out of memory: Kill process 12 (a b) score 900 or sacrifice child\n", Kill{1, 12, "a b", 2 * time.Microsecond}},
		"a name that plays":       {"3,1,2,-,caller=T1;Out of memory: Killed process 12 (a) (b) x) total-vm:1kB\n", Kill{1, 12, "a) (b) x", 2 * time.Microsecond}},
		"a container's limit":     {"3,1,2,-;Memory cgroup out of memory: Killed process 12 (a) total-vm:1kB\n", Kill{}},
		"a program wrote it":      {"11,1,2,-;Out of memory: Killed process 12 (a) total-vm:1kB\n", Kill{}},
		"a device is called so":   {"6,1,2,-;usb 1-1: Product: Out of memory: Killed process 1 (init)\n", Kill{}},
		"another line of it":      {"4,1,2,-;a invoked oom-killer: gfp_mask=0x1\n", Kill{}},
		"in its second line":      {"6,1,2,-;x\n Out of memory: Killed process 1 (init)\n", Kill{}},
		"no name":                 {"3,1,2,-;Out of memory: Killed process 12\n", Kill{}},
		"no number":               {"3,1,2,-;Out of memory: Killed process -1 (a)\n", Kill{}},
		"a time beyond all times": {"3,1,9223372036854775807,-;Out of memory: Killed process 12 (a)\n", Kill{}},
		"a number beyond all":     {"3,18446744073709551615,2,-;Out of memory: Killed process 12 (a)\n", Kill{}},
		"empty":                   {"", Kill{}},
	} {
		if got, ok := Parse(c.record); got != c.want || ok != (c.want != Kill{}) {
			t.Errorf("%s: %+v, %v", name, got, ok)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("3,1417,88120573,-;Out of memory: Killed process 4711 (java) total-vm:1kB")
	f.Fuzz(func(t *testing.T, record string) {
		k, ok := Parse(record)
		if ok && (k.PID <= 0 || k.At < 0 || len(k.Name) > longestName || !strings.Contains(record, "Out of memory: Kill")) || !ok && k != (Kill{}) {
			t.Errorf("%+v, %v", k, ok)
		}
	})
}

// TestRun checks that each kill causes one event, even if the agent was stopped at that time. Kills before the agent's first start cause no
// events. The clock of the kernel's log may differ from other clocks.
func TestRun(t *testing.T) {
	file, events := filepath.Join(t.TempDir(), "told"), make(chan string, 10)
	if err := os.WriteFile(file, []byte("88120573000"), 0o600); err != nil { // an older version has written this file
		t.Fatal(err)
	}
	said := []string{kill(7, "long ago")} // this record is in the kernel's log
	for i, name := range []string{"first", "second"} {
		ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		kernel := os.NewFile(uintptr(ends[0]), "kernel")
		say := func(r string) {
			t.Helper()
			if _, err := kernel.WriteString(r); err != nil {
				t.Fatal(err)
			}
		}
		for _, r := range said {
			say(r)
		}
		ages := make(chan time.Duration, 10)
		w := New(Config{Kernel: func() (*os.File, error) { return os.NewFile(uintptr(ends[1]), "kmsg"), nil }, File: file, Killed: func(ago time.Duration) { ages <- ago }, Events: eventtest.Sink(func(e eventtest.Event) { events <- e.Message }), Log: slog.New(slog.DiscardHandler)})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		if i == 0 {
			for b, err := os.ReadFile(file); err != nil || string(b) != "record 8"; b,
				err = os.ReadFile(file) { // the existing records are skipped
				runtime.Gosched()
			}
			said = append(said, kill(8, name))
			say(said[1])
		}
		if got := <-events; got != "System OOM encountered, victim process: "+name+", pid: 12" {
			t.Error(got)
		}
		if ago := <-ages; ago <= 0 {
			t.Errorf("%v ago", ago)
		}
		said = append(said, kill(9, "second")) // this kill happens while no agent runs
		stop()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		kernel.Close()
	}
	if len(events) > 0 {
		t.Error("a second event:", <-events)
	}
}

// TestKernel checks that a wait for records in the real kernel log can be cancelled.
func TestKernel(t *testing.T) {
	if f, err := os.Open("/dev/kmsg"); err != nil {
		t.Skip("this host does not show its kernel's log:", err)
	} else {
		f.Close()
	}
	for range 2 { // the second call reads all records of the kernel
		ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer stop()
		w := New(Config{File: filepath.Join(t.TempDir(), "told"), Events: event.Discard{}, Log: slog.New(slog.DiscardHandler)})
		if err := w.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	}
}

// kill returns the record of a kill with the given number. The kill is one second after the boot.
func kill(number int, name string) string {
	return fmt.Sprintf("3,%d,1000000,-;Out of memory: Killed process 12 (%s) total-vm:1kB\n", number, name)
}
