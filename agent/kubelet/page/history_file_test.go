package page

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// runHistory runs a history for the given duration, and returns its readings. Nothing is written at the end, as if the agent had been
// killed.
func runHistory(t *testing.T, file string, m Machine, d time.Duration) []Reading {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	h := history{file: historyFile{path: file, log: slog.New(slog.DiscardHandler)}}
	done := make(chan struct{})
	go func() { defer close(done); h.run(ctx, m) }()
	time.Sleep(d) // in the bubble's time
	cancel()
	<-done
	return h.list()
}

// TestHistorySurvives checks that the readings of the last hour survive restarts of the agent, and that older readings are dropped. The
// network traffic during a restart is counted. The file does not grow.
func TestHistorySurvives(t *testing.T) {
	file := filepath.Join(t.TempDir(), "history")
	synctest.Test(t, func(t *testing.T) {
		m := &machine{}
		first := runHistory(t, file, m, 3*time.Hour+time.Second)
		if len(first) != points {
			t.Fatalf("%d readings", len(first))
		}
		time.Sleep(5 * time.Minute) // in the bubble's time, like all later sleeps
		second := runHistory(t, file, m, time.Second)
		n := len(second)
		if n < points-12 || n > points || second[0].At.Before(time.Now().Add(-time.Hour-time.Minute)) {
			t.Fatalf("%d readings, the first of %v", n, second[0].At)
		}
		kept, last := second[n-2], first[points-1]
		if !kept.At.Equal(last.At) || kept.Cores != last.Cores || kept.Memory != last.Memory || kept.Disk != last.Disk ||
			kept.ReceivedBy != last.ReceivedBy || kept.SentBy != last.SentBy {
			t.Errorf("kept %+v of %+v", kept, last)
		}
		if got, want := second[n-1].SentBy, 2048/second[n-1].At.Sub(kept.At).Seconds(); got != want {
			t.Errorf("%v bytes per second over the restart, want %v", got, want)
		}
		third := runHistory(t, file, m, time.Second)
		if !third[len(third)-2].At.Equal(second[n-1].At) {
			t.Errorf("the second restart kept %v, want %v", third[len(third)-2].At, second[n-1].At)
		}
		if info, err := os.Stat(file); err != nil || info.Size() != points*recordSize || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
		time.Sleep(2 * time.Hour)
		if old := runHistory(t, file, m, time.Second); len(old) != 1 {
			t.Errorf("%d readings after two hours without an agent", len(old))
		}
	})
}

// TestHistoryFiles checks that an agent starts with an empty history if the history's file is missing, damaged, too large or not a regular
// file, or if a reading's time is in the future. The agent can then store new readings.
func TestHistoryFiles(t *testing.T) {
	future := encodeReading(Reading{At: time.Now().Add(30 * 365 * 24 * time.Hour), Memory: 1})
	for name, make := range map[string]func(file string) error{
		"nothing":   func(string) error { return nil },
		"ones":      func(f string) error { return os.WriteFile(f, bytes.Repeat([]byte{0xff}, points*recordSize), 0o600) },
		"torn":      func(f string) error { return os.WriteFile(f, future[:40], 0o600) },
		"future":    func(f string) error { return os.WriteFile(f, future, 0o600) },
		"large":     func(f string) error { return os.WriteFile(f, bytes.Repeat(future, 2*points), 0o600) },
		"directory": func(f string) error { return os.Mkdir(f, 0o700) },
		"FIFO":      func(f string) error { return unix.Mkfifo(f, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "history")
			if err := make(file); err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				if l := runHistory(t, file, &machine{}, time.Second); len(l) != 1 {
					t.Errorf("%+v", l)
				}
				if l := runHistory(t, file, &machine{}, time.Second); len(l) != 2 {
					t.Errorf("the second agent has %d readings", len(l))
				}
			})
		})
	}
}

// FuzzHistoryFile checks that load accepts any content, and returns ordered readings of the last hour.
func FuzzHistoryFile(f *testing.F) {
	f.Add(encodeReading(Reading{At: time.Unix(1e9, 0), Cores: 1.5, Memory: 7}))
	f.Fuzz(func(t *testing.T, b []byte) {
		file := historyFile{path: filepath.Join(t.TempDir(), "h"), log: slog.New(slog.DiscardHandler)}
		if err := os.WriteFile(file.path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		now := time.Unix(1e9, 1)
		l := file.load(now)
		for i, r := range l {
			if r.At.After(now) || now.Sub(r.At) > points*Interval || r.Cores < 0 || r.Cores != r.Cores || i > 0 && r.At.Before(l[i-1].At) {
				t.Errorf("%d: %+v", i, r)
			}
		}
		if file.next < 0 || file.next >= points || len(l) > points {
			t.Errorf("%d readings, next %d", len(l), file.next)
		}
	})
}
