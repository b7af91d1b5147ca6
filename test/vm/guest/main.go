// Command guest runs inside a virtual machine of the tests. It reads shell commands from the
// machine's control port. Each command is a line in base64. The guest runs the command and writes
// the result as a line of JSON. While a command runs, the guest writes empty lines, so that the
// test host can distinguish a slow machine from a machine that hangs.
package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// timeout is the maximum duration of a command. An emulated machine may be very slow.
const timeout = 30 * time.Minute

// aliveInterval is the interval of the empty lines.
const aliveInterval = 5 * time.Second

// maxOutput is the maximum size of the output in an Answer, in bytes. If the output of a command is longer, the
// Answer contains its end.
const maxOutput = 8 << 20

const ports = "/dev/vport*p1" // ports of virtio-serial; the number depends on the kernel

// An Answer is the result of a command.
type Answer struct {
	Output string // standard output and error
	Code   int    // exit code; -1 if the command could not be run
}

func main() {
	f, err := openConsole()
	if err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		os.Exit(1)
	}
	fmt.Fprintln(f, "ready")
	in := bufio.NewScanner(f)
	for in.Scan() {
		if err := runAndAnswer(f, in.Text()); err != nil {
			os.Exit(1)
		}
	}
}

// runAndAnswer runs a command and writes its Answer.
func runAndAnswer(to io.Writer, line string) error {
	done := make(chan []byte)
	go func() {
		b, err := json.Marshal(run(line))
		if err != nil {
			b = []byte(`{"Code":-1}`)
		}
		done <- b
	}()
	alive := time.NewTicker(aliveInterval)
	defer alive.Stop()
	for {
		select {
		case b := <-done:
			_, err := to.Write(append(b, '\n'))
			return err
		case <-alive.C:
			if _, err := to.Write([]byte{'\n'}); err != nil {
				return err
			}
		}
	}
}

func openConsole() (*os.File, error) {
	found, err := filepath.Glob(ports)
	if err != nil || len(found) != 1 {
		return nil, fmt.Errorf("want one %s, have %q", ports, found)
	}
	return os.OpenFile(found[0], os.O_RDWR, 0)
}

func run(line string) Answer {
	command, err := base64.StdEncoding.DecodeString(line)
	if err != nil {
		return Answer{Output: err.Error(), Code: -1}
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", string(command))
	cmd.WaitDelay = time.Second // limits the wait for output that a process in the background keeps open
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		out = append(out, "\nthe command timed out"...)
	}
	if len(out) > maxOutput {
		out = append([]byte("...\n"), out[len(out)-maxOutput:]...)
	}
	var exit *exec.ExitError
	switch {
	case err == nil:
		return Answer{Output: string(out)}
	case errors.As(err, &exit):
		return Answer{Output: string(out), Code: exit.ExitCode()}
	}
	return Answer{Output: err.Error(), Code: -1}
}
