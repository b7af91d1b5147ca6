package drain_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/runtime/drain"
)

// openTerminal returns the non-blocking master and the slave of a new terminal.
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	n, err1 := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	err2 := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	slave, err3 := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), "terminal"), slave
}

// TestTerminal checks a process that ends while its reader pauses. Its output is then in the kernel's buffers of a terminal. The first
// read returns only a part of it. The reader receives all of it. If the context ends first, the error contains the number of lost bytes.
func TestTerminal(t *testing.T) {
	t.Parallel()
	want := strings.ReplaceAll(seq(2000), "\n", "\r\n") // 10,893 bytes; the kernel keeps up to 12 KiB
	for name, tt := range map[string]struct {
		limit  time.Duration
		cancel bool
		script string
	}{
		"followed":                   {script: "seq 1 2000"},
		"collected":                  {limit: time.Nanosecond, script: "seq 1 2000"},
		"collected, a child process": {limit: time.Nanosecond, script: "sleep 3 & seq 1 2000"},
		"context ended":              {cancel: true, script: "seq 1 2000"},
		"context ended, empty":       {cancel: true, script: "echo own"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			master, slave := openTerminal(t)
			g := newGated()
			var out drain.Outputs
			out.Add(master, g)
			cmd := exec.Command("/bin/sh", "-c", tt.script)
			cmd.Stdout = slave
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			slave.Close()
			out.Start()
			<-g.full
			if err := cmd.Wait(); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			time.AfterFunc(drain.Grace/10, func() {
				if tt.cancel {
					cancel()
				}
				time.AfterFunc(drain.Grace/10, func() { close(g.open) })
			})
			lost := out.Finish(ctx, tt.limit)
			want := want
			if tt.script == "echo own" {
				want = "own\r\n"
			}
			missing := len(want) - g.Len()
			var e *drain.LostError
			switch {
			case !strings.HasPrefix(want, g.String()), missing > 0 && !tt.cancel:
				t.Errorf("%d of %d bytes, %v", g.Len(), len(want), lost)
			case missing == 0 && lost != nil, missing > 0 && (!errors.As(lost, &e) || e.Bytes != int64(missing)):
				t.Errorf("%d bytes are missing: %v", missing, lost)
			}
		})
	}
}
