package node

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
)

// A kubectl runs kubectl in the namespace with the pods of TestKubectl.
type kubectl struct {
	*cluster.Cluster
	ns   string
	port int // this port and the next one are free on the control plane's host
}

func (k kubectl) args(args ...string) []string { return append([]string{"-n", k.ns}, args...) }

// want checks that the output of a command contains a text. The command may succeed or fail.
func (k kubectl) want(t *testing.T, want string, args ...string) {
	t.Helper()
	if out, err := k.TryKubectl("", k.args(args...)...); !strings.Contains(out, want) {
		t.Errorf("kubectl %s: %v, want %q in %q", strings.Join(args, " "), err, want, out)
	}
}

func (k kubectl) logs(t *testing.T) {
	session := k.start(t, nil, "logs", "-f", "count")
	for n := range 40 {
		session.await(t, fmt.Sprintf("%d\n", n))
	}
	session.kill()
	k.want(t, "0\n1\n", "logs", "count", "--limit-bytes=4")
	if out := k.Kubectl(t, k.args("logs", "count", "--tail=3", "--since=1h", "--timestamps")...); strings.Count(out, "\n") != 3 ||
		!strings.HasPrefix(out, "20") {
		t.Errorf("the last logs are %q", out)
	}
	if out := k.Kubectl(t, k.args("logs", "count", "--tail=2", "--all-containers", "--prefix")...); strings.Count(out, "\n") != 3 ||
		!strings.Contains(out, "[pod/count/first] count\n") || strings.Count(out, "[pod/count/c]") != 2 {
		t.Errorf("the logs of all containers are %q", out)
	}
	k.AwaitPod(t, k.ns, "again", "to have restarted", func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].LastTerminationState.Terminated != nil
	})
	k.want(t, "again\n", "logs", "-p", "again")
	k.want(t, `previous terminated container "c" in pod "web" not found`, "logs", "-p", "web")
	k.AwaitPod(t, k.ns, "lost", "to miss its image", func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Waiting != nil &&
			p.Status.ContainerStatuses[0].State.Waiting.Reason == "ErrImageNeverPull"
	})
	k.want(t, `container "c" in pod "lost" is waiting to start: ErrImageNeverPull`, "logs", "lost")
}

func (k kubectl) exec(t *testing.T) {
	k.want(t, "web\n", "exec", "web", "--", "/podtool", "cat", "/etc/hostname")
	if out, err := k.TryKubectl("to and fro", k.args("exec", "-i", "web", "--", "/podtool", "cat")...); err != nil || out != "to and fro" {
		t.Errorf("exec -i returned %q, %v", out, err)
	}
	big := strings.Repeat("0123456789abcdef", 64<<10)
	if out, err := k.TryKubectl(big, k.args("exec", "-i", "web", "--", "/podtool", "cat")...); err != nil || out != big {
		t.Errorf("exec -i with %d bytes returned %d, %v", len(big), len(out), err)
	}
	if out, err := k.TryKubectl("", k.args("exec", "web", "--", "/podtool", "exit", "7")...); err == nil ||
		!strings.Contains(out, "exit code 7") {
		t.Errorf("exec of a failing command returned %q, %v", out, err)
	}
	k.want(t, "no such file or directory", "exec", "web", "--", "/nothing")
	k.want(t, `container not found ("c")`, "exec", "lost", "--", "/podtool")
}

// terminal checks exec -it and attach -it with a terminal whose size changes.
func (k kubectl) terminal(t *testing.T) {
	tty := openTerminal(t)
	tty.resize(t, 25, 81)
	session := k.start(t, tty, "exec", "-it", "web", "--", "/podtool", "size")
	session.await(t, "25 81\r\n")
	tty.resize(t, 26, 82)
	syscall.Kill(session.Pid, syscall.SIGWINCH)
	session.await(t, "26 82\r\n")
	session.kill()

	tty = openTerminal(t)
	session = k.start(t, tty, "exec", "-it", "web", "--", "/podtool", "cat")
	session.say(t, "hello\n", "hello\r\nhello\r\n") // from the terminal and from cat
	session.say(t, "\x04", "")
	session.end(t, true)

	tty = openTerminal(t)
	session = k.start(t, tty, "run", "-it", "--rm", "typist", "--restart=Never", "--image-pull-policy=Never", "--image="+machine.Image,
		"--", "cat")
	k.AwaitReady(t, k.ns, "typist")
	session.say(t, "hello\n", "hello\r\nhello\r\n")
	session.say(t, "\x04", `pod "typist" deleted`)
	session.end(t, true)
}

// attach checks that kubectl attach sends input to a container and receives its output. The container's stdin must stay open after a client
// has closed its input.
func (k kubectl) attach(t *testing.T) {
	for _, line := range []string{"one\n", "two\n"} {
		session := k.start(t, nil, "attach", "-i", "cat")
		session.say(t, line, line)
		session.in.Close()
		session.end(t, true)
	}
}

func (k kubectl) run(t *testing.T) {
	args := k.args("run", "once", "--rm", "-i", "--restart=Never", "--image-pull-policy=Never", "--image="+machine.Image, "--", "cat")
	if out, err := k.TryKubectl("through a pod\n", args...); err != nil || !strings.Contains(out, "through a pod\n") ||
		!strings.Contains(out, "deleted") {
		t.Errorf("run --rm -i returned %q, %v", out, err)
	}
}

func (k kubectl) cp(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "from"), filepath.Join(t.TempDir(), "to")
	text := strings.Repeat("a line\n", 100<<10)
	if err := os.WriteFile(from, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	k.Kubectl(t, k.args("exec", "web", "--", "/podtool", "install", "tar")...)
	k.Kubectl(t, k.args("cp", from, "web:/there")...)
	k.Kubectl(t, k.args("cp", "web:/there", to)...)
	if b, err := os.ReadFile(to); err != nil || string(b) != text {
		t.Errorf("cp returned %d bytes of %d, %v", len(b), len(text), err)
	}
}

func (k kubectl) portForward(t *testing.T) {
	local := fmt.Sprintf("127.0.0.1:%d", k.port)
	session := k.start(t, nil, "port-forward", "web", fmt.Sprintf("%d:8080", k.port))
	session.await(t, local+" -> 8080\n")
	client := http.Client{Transport: &http.Transport{DialContext: k.Dial, DisableKeepAlives: true}}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			r, err := client.Get("http://" + local + "/")
			if err != nil {
				t.Errorf("forwarded port: %v", err)
				return
			}
			defer r.Body.Close()
			if b, err := io.ReadAll(r.Body); err != nil || string(b) != "web\n" {
				t.Errorf("the forwarded port returned %q, %v", b, err)
			}
		})
	}
	all.Wait()

	local = fmt.Sprintf("127.0.0.1:%d", k.port+1)
	session = k.start(t, nil, "port-forward", "web", fmt.Sprintf("%d:8081", k.port+1))
	session.await(t, local+" -> 8081\n")
	if r, err := client.Get("http://" + local + "/"); err == nil {
		r.Body.Close()
		t.Error("a port without a listener responds")
	}
	session.await(t, "connection refused")
}

// A session is a running kubectl with its output.
type session struct {
	*machine.Process
	in   io.WriteCloser
	out  *bufio.Reader
	cmd  *exec.Cmd
	ctx  context.Context // ends when the session must have ended
	seen string
}

// start starts kubectl with a terminal, or with pipes if the terminal is nil. kubectl is killed at the end of the test.
func (k kubectl) start(t *testing.T, tty *terminal, args ...string) *session {
	t.Helper()
	s := &session{cmd: k.KubectlCommand(k.args(args...)...)}
	if tty != nil {
		s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = tty.theirs, tty.theirs, tty.theirs
		s.in, s.out = tty.ours, bufio.NewReader(tty.ours)
	} else {
		in, err := s.cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		ours, theirs, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ours.Close() })
		defer theirs.Close()
		s.in, s.out, s.cmd.Stdout, s.cmd.Stderr = in, bufio.NewReader(ours), theirs, theirs
	}
	var err error
	if s.Process, err = machine.StartProcess(s.cmd); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), machine.WaitTimeout)
	s.ctx = ctx
	context.AfterFunc(ctx, s.kill)
	t.Cleanup(cancel)
	return s
}

// kill kills kubectl. It may be called several times.
func (s *session) kill() {
	select {
	case <-s.Ended:
	default:
		syscall.Kill(s.Pid, syscall.SIGKILL)
		<-s.Ended
	}
}

// say writes input and waits for the expected output.
func (s *session) say(t *testing.T, line, want string) {
	t.Helper()
	if _, err := io.WriteString(s.in, line); err != nil {
		t.Fatal(err)
	}
	s.await(t, want)
}

// await reads the output until it contains a text. The search begins after the text of the previous call.
func (s *session) await(t *testing.T, want string) {
	t.Helper()
	for !strings.Contains(s.seen, want) {
		b, err := s.out.ReadByte()
		if err != nil {
			t.Fatalf("%s: no %q in the output %q: %v", s.cmd, want, s.seen, err)
		}
		s.seen += string(b)
	}
	_, s.seen, _ = strings.Cut(s.seen, want)
}

// end waits until kubectl exits by itself.
func (s *session) end(t *testing.T, success bool) {
	t.Helper()
	<-s.Ended
	if s.ctx.Err() != nil {
		t.Errorf("%s has not exited, the output is %q", s.cmd, s.seen)
	} else if s.cmd.ProcessState.Success() != success {
		t.Errorf("%s: %v, the output is %q", s.cmd, s.cmd.ProcessState, s.seen)
	}
}

// A terminal is a pseudo-terminal of a session.
type terminal struct{ ours, theirs *os.File }

func openTerminal(t *testing.T) *terminal {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close() })
	raw, err := ours.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var number int
	raw.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
			number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { theirs.Close() })
	if _, err := term.MakeRaw(int(theirs.Fd())); err != nil { // otherwise it echoes input before kubectl reads it
		t.Fatal(err)
	}
	return &terminal{ours, theirs}
}

func (y *terminal) resize(t *testing.T, rows, columns uint16) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(y.theirs.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}); err != nil {
		t.Fatal(err)
	}
}
