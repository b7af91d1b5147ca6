package session_test

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/agent/cli"
	"github.com/islet-edge/islet/internal/ptytest"
	"github.com/islet-edge/islet/runtime/cri"
)

func TestExec(t *testing.T) {
	n, stop := startNode(t)
	check(t, n, run(t, n, "", "exec", "web", "-c", "nginx", "--", "echo", "-n", "a b"), 0, "-n a b\n", "from web-pi-nginx\n")
	check(t, n, run(t, n, "", "exec", "web", "-c", "nginx", "--", "exit", "42"), 42, "", "")
	check(t, n, run(t, n, "", "exec", "dns", "nothing"), 1, "", "islet: executable file not found: nothing\n")
	check(t, n, run(t, n, "", "exec", "crash", "--", "echo"), 1, "",
		"islet: container not found (\"app\"): it is not running: waiting, CrashLoopBackOff\n")
	big := strings.Repeat("0123456789abcdef", 64<<10)
	check(t, n, run(t, n, big, "exec", "-i", "dns", "--", "cat"), 0, big, "")
	check(t, n, run(t, n, "hello", "attach", "-i", "dns"), 0, "hello", "")
	check(t, n, run(t, n, "", "exec", "-it", "dns", "--", "cat"), 0, "", "Standard input is not a terminal: -t has no effect.\n")

	// The agent stops while the command runs.
	r, w := io.Pipe()
	never, end := io.Pipe()
	defer end.Close()
	var errw bytes.Buffer
	done := make(chan int, 1)
	go func() {
		done <- cli.Main(t.Context(), []string{"exec", "-i", "dns", "--", "cat"}, env(n, io.MultiReader(strings.NewReader("x"), never), w, &errw))
	}()
	io.ReadFull(r, make([]byte, 1))
	stop()
	code := <-done
	check(t, n, result{Err: errw.String(), Code: code}, 1, "", "islet: the agent is stopping; the command was ended\n")
	w.Close()
	n.Runtime.Streams.Wait()
}

// TestExecTerminal checks that islet exec -it connects a terminal to a shell in a container.
func TestExecTerminal(t *testing.T) {
	n, _ := startNode(t)
	master, slave := ptytest.Open(t)
	resize := func(w, h uint16) {
		if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: w, Row: h}); err != nil {
			t.Fatal(err)
		}
	}
	mode := func() unix.Termios {
		m, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		return *m
	}
	resize(80, 24)
	before := mode()
	done := make(chan int, 1)
	go func() {
		done <- cli.Main(t.Context(), []string{"exec", "-it", "dns", "--", "sh"}, env(n, slave, slave, slave))
	}()
	wantSize := func(want cri.TerminalSize) {
		t.Helper()
		select {
		case got := <-n.Runtime.Size:
			if got != want {
				t.Errorf("size %v, want %v", got, want)
			}
		case <-time.After(time.Minute):
			t.Fatal("no size")
		}
	}
	wantSize(cri.TerminalSize{Width: 80, Height: 24})
	resize(100, 30)
	unix.Kill(os.Getpid(), unix.SIGWINCH)
	wantSize(cri.TerminalSize{Width: 100, Height: 30})
	if m := mode(); m.Lflag&(unix.ICANON|unix.ECHO) != 0 {
		t.Error("the terminal is not raw")
	}
	master.WriteString("hello\n")
	if line, err := bufio.NewReader(master).ReadString('\n'); err != nil || line != "you said hello\r\n" {
		t.Errorf("got %q, %v", line, err)
	}
	master.WriteString("exit\n")
	if code := <-done; code != 7 {
		t.Errorf("code %d", code)
	}
	if after := mode(); after != before {
		t.Errorf("the terminal is not as before: %+v, %+v", after, before)
	}

	// A signal ends the command too, and the terminal's mode is restored.
	go func() {
		done <- cli.Main(t.Context(), []string{"exec", "-it", "dns", "--", "sh"}, env(n, slave, slave, slave))
	}()
	wantSize(cri.TerminalSize{Width: 100, Height: 30})
	unix.Kill(os.Getpid(), unix.SIGTERM)
	if code := <-done; code != 130 {
		t.Errorf("code %d", code)
	}
	if after := mode(); after != before {
		t.Errorf("the terminal is not as before: %+v, %+v", after, before)
	}
	n.Runtime.Streams.Wait()
}
