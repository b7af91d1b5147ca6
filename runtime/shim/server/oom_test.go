package server

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/runtime/shim/wire"
)

// TestOOMOfOther checks a container that ends after another container of its pod ran out of memory. systemd removes the cgroup of the ended
// container while its last output is being read. Only its own OOM kills count.
func TestOOMOfOther(t *testing.T) {
	const failed, killed = unix.WaitStatus(1 << 8), unix.WaitStatus(unix.SIGKILL)
	for _, tt := range []struct {
		name      string
		own       int
		status    unix.WaitStatus
		want      bool
		withoutIt bool // whether the cgroup is already removed when the container's end is noticed
	}{
		{name: "other", own: 0, status: failed, want: false},
		{name: "stopped", own: 0, status: killed, want: false},
		{name: "own", own: 1, status: killed, want: true},
		{name: "a child process", own: 2, status: failed, want: true},
		{name: "success", own: 1, status: 0, want: false},
		{name: "unknown", status: killed, want: true, withoutIt: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(name string, kills int) string {
				t.Helper()
				path := filepath.Join(dir, name)
				if err := os.WriteFile(path, fmt.Appendf(nil, "low 0\noom %d\noom_kill %d\noom_group_kill 0\n", kills, kills), 0o600); err != nil {
					t.Fatal(err)
				}
				return path
			}
			s := New(slog.New(slog.DiscardHandler), nil)
			c := &container{
				pid: 1, req: wire.RunRequest{ID: "c", Bundle: dir}, ended: make(chan struct{}),
				cgroup: cgroupFiles{events: write("own", tt.own), parentEvents: write("pod", 8), oomKillsBefore: 5},
			}
			var err error
			if c.io, err = newStreams(c); err != nil {
				t.Fatal(err)
			}
			c.io.startCopying()
			remove := func() {
				if err := os.Remove(c.cgroup.events); err != nil {
					t.Error(err)
				}
			}
			if tt.withoutIt {
				remove()
			}
			status := make(chan unix.WaitStatus, 1)
			status <- tt.status
			go s.waitForEnd(c, status)
			<-c.io.ended // the rest of its output is being read
			if !tt.withoutIt {
				remove()
			}
			c.io.closeChild()
			<-c.ended
			if c.exit.OOM != tt.want {
				t.Errorf("OOM is %v", c.exit.OOM)
			}
		})
	}
}
