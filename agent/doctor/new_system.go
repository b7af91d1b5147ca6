package doctor

import (
	"context"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/metrics/host"
	"github.com/islet-edge/islet/runtime/abilities"
)

// NewSystem returns the System of this machine. Each program that the System runs may take 5 s.
func NewSystem() System {
	machine := host.New(host.Config{})
	return System{
		Now:  time.Now,
		Disk: machine.Disk,
		Find: exec.LookPath,
		Output: func(ctx context.Context, path string, args ...string) (string, error) {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			cmd := exec.CommandContext(ctx, path, args...)
			cmd.Env = append(os.Environ(), "LC_ALL=C")
			out, err := cmd.Output()
			return string(out), err
		},
		Watch: func() error {
			fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
			if err != nil {
				return os.NewSyscallError("inotify_init1", err)
			}
			return unix.Close(fd)
		},
		Users: func(program string) bool { return new(abilities.Cache).Get(program).Users },
	}
}
