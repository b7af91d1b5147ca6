package feed

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/islet-edge/islet/internal/download"
)

// A watchedSource counts how often the state of the Follower has changed on the disk between two requests.
type watchedSource struct {
	source
	file   string
	writes int
	inode  uint64
}

func (s *watchedSource) ApplyFollowed(ctx context.Context, from string, last Seen) (Seen, error) {
	if info, err := os.Stat(s.file); err == nil {
		if inode := info.Sys().(*syscall.Stat_t).Ino; inode != s.inode { // each write replaces the file
			s.inode = inode
			s.writes++
		}
	}
	return s.source.ApplyFollowed(ctx, from, last)
}

// TestIdleFollower checks that a source that has nothing new costs at most one write a day, for short and long intervals. A node that
// starts often still keeps the pace: see TestReboots.
func TestIdleFollower(t *testing.T) {
	for _, every := range []time.Duration{time.Minute, time.Hour, 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			s := &watchedSource{file: filepath.Join(t.TempDir(), "state")}
			s.tag = "a"
			const days = 10
			_, stop := followEvery(t, s.file, "https://example.com/k.tar", every, s)
			time.Sleep(days * 24 * time.Hour) // in the bubble's time
			stop()
			gaps, tried := s.gaps()
			if s.writes < 1 || s.writes > days+2 || tried != 1 || len(gaps) < days-2 {
				t.Errorf("every %s: %d writes in %d days, %d requests, %d bundles were read", every, s.writes, days, len(gaps)+1, tried)
			}
		})
	}
}

// TestOverloadedSource checks that a server which always requests a time with Retry-After costs at most one write an hour.
func TestOverloadedSource(t *testing.T) {
	for _, every := range []time.Duration{time.Minute, 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			s := &watchedSource{file: filepath.Join(t.TempDir(), "state")}
			s.err = download.UnreachableError{Err: errors.New("503"), RetryAfter: 2 * time.Minute}
			const hours = 48
			_, stop := followEvery(t, s.file, "https://example.com/k.tar", every, s)
			time.Sleep(hours * time.Hour) // in the bubble's time
			stop()
			if s.writes < 1 || s.writes > hours+1 {
				t.Errorf("every %s: %d writes in %d hours", every, s.writes, hours)
			}
		})
	}
}
