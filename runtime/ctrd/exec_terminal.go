package ctrd

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/islet-edge/islet/internal/inherit"
	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/drain"
)

// runTerminal does the same as runPipes with a terminal. The OCI runtime copies the data and the size of this terminal to
// the terminal inside the container.
func runTerminal(ctx context.Context, cmd *exec.Cmd, o cri.ExecOptions, watch func() func() bool) error {
	master, slave, err := openTerminal()
	if err != nil {
		return err
	}
	var out drain.Outputs
	if o.Stdout != nil {
		out.Add(master, o.Stdout)
	} else {
		out.Add(master, io.Discard)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err = inherit.Start(cmd)
	slave.Close()
	if err != nil {
		out.Abort()
		return err
	}
	done := make(chan struct{})
	defer close(done)
	go forwardSizes(master, o.Resize, done)
	if o.Stdin != nil {
		go io.Copy(master, o.Stdin)
	}
	return finishExec(ctx, cmd, o, &out, watch())
}

func forwardSizes(tty *os.File, sizes <-chan cri.TerminalSize, done <-chan struct{}) {
	for {
		select {
		case s, ok := <-sizes:
			if !ok {
				return
			}
			raw, err := tty.SyscallConn()
			if err != nil {
				return
			}
			raw.Control(func(fd uintptr) {
				unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Col: s.Width, Row: s.Height})
			})
		case <-done:
			return
		}
	}
}

// openTerminal creates a pseudo terminal in raw mode with a non-blocking master. It sets raw mode
// immediately, before the OCI runtime does, because early input is for the terminal inside the
// container. That terminal echoes the input and interprets Ctrl-D.
func openTerminal() (master, slave *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	master = os.NewFile(uintptr(fd), "/dev/ptmx")
	n, err1 := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	err2 := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	if err := errors.Join(err1, err2); err != nil {
		master.Close()
		return nil, nil, err
	}
	slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err == nil {
		_, err = term.MakeRaw(int(slave.Fd()))
	}
	if err != nil {
		master.Close()
		slave.Close()
		return nil, nil, err
	}
	return master, slave, nil
}
