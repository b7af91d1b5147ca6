package worker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// TestAttemptAfterLogs checks that a container without a record does not continue the log of an attempt whose record is lost, that only the
// newest of the earlier logs stays, and that the attempts are counted on if the logs are lost too.
func TestAttemptAfterLogs(t *testing.T) {
	for name, c := range map[string]struct {
		files          map[string]bool // true: the file stays
		lives, attempt int
		before         v1.ContainerStatus
	}{
		"no logs":                  {nil, 0, 0, v1.ContainerStatus{}},
		"another life":             {nil, 2, 2, v1.ContainerStatus{}},
		"counted":                  {nil, 0, 6, v1.ContainerStatus{RestartCount: 5, ContainerID: "x://5"}},
		"counted as the next one":  {nil, 0, 5, v1.ContainerStatus{RestartCount: 5}},
		"a log after the counted":  {map[string]bool{"7.log": true}, 0, 8, v1.ContainerStatus{RestartCount: 5, ContainerID: "x://5"}},
		"a log before the counted": {map[string]bool{"2.log": true}, 0, 6, v1.ContainerStatus{RestartCount: 5, ContainerID: "x://5"}},
		"one":                      {map[string]bool{"0.log": true}, 0, 1, v1.ContainerStatus{}},
		"several":                  {map[string]bool{"9.log": false, "9.log.20260101-000000.gz": false, "10.log": true, "10.log.20260101-000000": true}, 0, 11, v1.ContainerStatus{}},
		"only a rotated part":      {map[string]bool{"3.log.20260101-000000.gz": true}, 0, 4, v1.ContainerStatus{}},
		"another life, with logs":  {map[string]bool{"0.log": true}, 2, 2, v1.ContainerStatus{}},
		"no log of a container":    {map[string]bool{"7.logs": true, "x.log": true, "8.txt": true, "-9.log": true, "99999999999.log": true, "18446744073709551615.log": true}, 0, 0, v1.ContainerStatus{}},
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
				c.before.Name = "c"
				n.setWish("a", Wanted{Pod: pod("a", ""), Lives: c.lives, Before: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{c.before}}})
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

// TestLinksOfLostLogs checks that the links to logs of lost attempts are removed with the logs.
func TestLinksOfLostLogs(t *testing.T) {
	links, dir := &linkRecorder{}, filepath.Join(t.TempDir(), "pod", "c")
	err := os.MkdirAll(dir, 0o755)
	for _, name := range []string{"0.log", "1.log"} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	e := NewExecutor(ExecutorConfig{Runtime: newMachine(), Links: links})
	n := e.attemptAfterLogs(t.Context(), filepath.Join(dir, "0.log"), 0)
	if want := []string{filepath.Join(dir, "0.log")}; n != 2 || !slices.Equal(links.unlinked, want) {
		t.Errorf("attempt %d, the links of %v were removed", n, links.unlinked)
	}
}
