package ctrd

import (
	"context"
	"io"
	"os"
	"os/exec"
	"syscall"

	"github.com/islet-edge/islet/internal/inherit"
	"github.com/islet-edge/islet/runtime/console"
	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/drain"
)

// runTerminal is like runPipes with a terminal. The OCI runtime, which is started by cmd, sends the terminal of the command
// through the socket. The agent reads the terminal itself, because crun loses output if it copies the output of a command to a slow reader.
func runTerminal(ctx context.Context, cmd *exec.Cmd, socket *console.Socket, o cri.ExecOptions, watch func() func() bool) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := inherit.Start(cmd); err != nil {
		return err
	}
	endedFirst := watch()
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		socket.End()
		ended <- err
	}()
	tty, err := socket.Receive(execStartTimeout + drain.Grace) // Receive returns earlier if cmd ends
	if err != nil {
		cmd.Process.Kill() // usually cmd has already ended, and its error is the cause
		failed := <-ended
		switch {
		case !endedFirst():
			return errEnded
		case failed != nil:
			return failed
		}
		return err
	}
	var out drain.Outputs
	if o.Stdout != nil {
		out.Add(tty, o.Stdout)
	} else {
		out.Add(tty, io.Discard)
	}
	done := make(chan struct{})
	defer close(done)
	go forwardSizes(tty, o.Resize, done)
	if o.Stdin != nil {
		go io.Copy(tty, o.Stdin)
	}
	return finishExec(ctx, cmd, func() error { return <-ended }, o, &out, endedFirst)
}

// forwardSizes resizes the terminal for each received size, until sizes or done is closed.
func forwardSizes(tty *os.File, sizes <-chan cri.TerminalSize, done <-chan struct{}) {
	for {
		select {
		case s, ok := <-sizes:
			if !ok {
				return
			}
			console.Resize(tty, s.Width, s.Height)
		case <-done:
			return
		}
	}
}
