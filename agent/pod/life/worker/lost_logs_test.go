package worker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestAttemptAfterLogs checks that a container without a record does not continue the log of an attempt whose record is lost, and that only
// the newest of the earlier logs stays.
func TestAttemptAfterLogs(t *testing.T) {
	for name, c := range map[string]struct {
		files          map[string]bool // true: the file stays
		lives, attempt int
	}{
		"no logs":                 {nil, 0, 0},
		"another life":            {nil, 2, 2},
		"one":                     {map[string]bool{"0.log": true}, 0, 1},
		"several":                 {map[string]bool{"9.log": false, "9.log.20260101-000000.gz": false, "10.log": true, "10.log.20260101-000000": true}, 0, 11},
		"only a rotated part":     {map[string]bool{"3.log.20260101-000000.gz": true}, 0, 4},
		"another life, with logs": {map[string]bool{"0.log": true}, 2, 2},
		"no log of a container":   {map[string]bool{"7.logs": true, "x.log": true, "8.txt": true, "-9.log": true, "99999999999.log": true, "18446744073709551615.log": true}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, newMachine("app:1"), func(t *testing.T, n *node) {
				dir := filepath.Join(n.logs, "default_a_a", "c")
				err := os.MkdirAll(dir, 0o755)
				for file := range c.files {
					err = errors.Join(err, os.WriteFile(filepath.Join(dir, file), nil, 0o600))
				}
				if err != nil {
					t.Fatal(err)
				}
				n.setWish("a", Wanted{Pod: pod("a", ""), Lives: c.lives})
				checkRunning(t, n, fmt.Sprint("a/c#", c.attempt))
				n.machine.mu.Lock()
				for _, cfg := range n.machine.configs {
					if cfg.LogPath != fmt.Sprintf("c/%d.log", c.attempt) {
						t.Errorf("the log is %s", cfg.LogPath)
					}
				}
				n.machine.mu.Unlock()
				for file, stays := range c.files {
					if _, err := os.Stat(filepath.Join(dir, file)); (err == nil) != stays {
						t.Errorf("%s: %v", file, err)
					}
				}
				time.Sleep(time.Minute)
				n.stop() // the next attempt has a record, so the logs do not count
				if err := os.WriteFile(filepath.Join(dir, "50.log"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
				n.Reboot()
				n.start(t)
				checkRunning(t, n, fmt.Sprint("a/c#", c.attempt+1))
			})
		})
	}
}
