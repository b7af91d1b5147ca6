package agent

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// An agent whose helpers hang ends all the same, and one that ends in time is
// waited for.
func TestBounded(t *testing.T) {
	failed := errors.New("failed")
	for name, c := range map[string]struct {
		takes time.Duration // after it was asked to end
		want  error
	}{"at once": {0, failed}, "soon": {time.Second, failed}, "never": {time.Hour, errAbandoned}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, end := context.WithCancel(t.Context())
				time.AfterFunc(time.Minute, end)
				began := time.Now()
				err := bounded(ctx, lastCalls, func() error {
					<-ctx.Done()
					time.Sleep(c.takes)
					return failed
				})
				defer time.Sleep(c.takes) // a bubble waits for all that it started
				if took := time.Since(began); err != c.want || took > time.Minute+lastCalls {
					t.Errorf("%v after %v, want %v", err, took, c.want)
				}
			})
		})
	}
}

// The limit counts for the agent; a process that it starts has the old one.
func TestLimitFiles(t *testing.T) {
	var before unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &before); err != nil {
		t.Fatal(err)
	}
	defer unix.Prlimit(0, unix.RLIMIT_NOFILE, &before, nil)
	const lower = 321
	if err := limitFiles(lower); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile("/proc/self/limits")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); strings.HasPrefix(line, "Max open files") && f[3] != "321" {
			t.Errorf("limit %s", f[3])
		}
	}
	if before.Max < 1<<62 {
		limitFiles(before.Max + 1) // refused or not, the hard limit is not lowered
	}
	var now unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &now); err != nil || now.Max < before.Max {
		t.Errorf("hard limit %d, was %d (%v)", now.Max, before.Max, err)
	}
}
