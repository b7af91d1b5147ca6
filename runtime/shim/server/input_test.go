package server

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/runtime/shim/wire"
)

// An inputTest is a shim with one container, whose stdin is a pipe.
type inputTest struct {
	*Server
	c      *container
	stdin  *os.File // read end of the container's stdin
	socket string
}

func newInputTest(t *testing.T) inputTest {
	t.Helper()
	i := inputTest{Server: New(slog.New(slog.DiscardHandler), nil), socket: filepath.Join(t.TempDir(), "s")}
	i.c = &container{pid: 1, req: wire.RunRequest{ID: "c"}, io: emptyStreams()}
	child, ours, err := stdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	i.stdin, i.c.io.stdin.file, i.containers["c"] = child, ours, i.c
	l, err := net.Listen("unix", i.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(); ours.Close(); child.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go i.serveConn(i.addConn(c))
		}
	}()
	return i
}

// attach attaches a client. It returns nil if the limit of clients is reached.
func (i inputTest) attach(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", i.socket)
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(wire.AttachRequest{ID: "c", Stdin: true, Stdout: true, End: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewEncoder(c).Encode(wire.Request{ID: 1, Method: wire.MethodAttach, Body: body}); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(c).ReadBytes('\n')
	var reply wire.Reply
	if err != nil || json.Unmarshal(line, &reply) != nil {
		t.Fatalf("%q, %v", line, err)
	}
	if reply.Error != "" {
		c.Close()
		return nil
	}
	return c
}

// send sends two frames. They fill the pipe, which by default holds 64 KiB.
func send(t *testing.T, c net.Conn, b byte) {
	t.Helper()
	for range 2 {
		if err := wire.WriteFrame(c, wire.StreamStdin, bytes.Repeat([]byte{b}, wire.MaxFrame)); err != nil {
			t.Fatal(err)
		}
	}
}

func (i inputTest) clients() int {
	i.c.io.mu.Lock()
	defer i.c.io.mu.Unlock()
	return len(i.c.io.clients)
}

func (i inputTest) attached() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.attachedClients
}

// awaitFull waits until the pipe is full.
func (i inputTest) awaitFull(t *testing.T) {
	t.Helper()
	fd := int(i.stdin.Fd())
	size, err := unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0)
	if err != nil {
		t.Fatal(err)
	}
	for {
		if n, err := unix.IoctlGetInt(fd, unix.TIOCINQ); err != nil {
			t.Fatal(err)
		} else if n == size {
			return
		}
	}
}

// TestUnreadInput checks many clients that send input that the container does not read, and then disconnect. Nothing of them is left. The
// number of clients at one time is limited, and a client that stays connected keeps its input.
func TestUnreadInput(t *testing.T) {
	i := newInputTest(t)
	i.c.io.stdin.grace = 10 * time.Millisecond
	before := runtime.NumGoroutine()
	stays := i.attach(t)
	send(t, stays, 's')
	send(t, stays, 's')
	i.awaitFull(t)
	most := 0
	for n := 0; n < 1000; {
		c := i.attach(t)
		most = max(most, i.clients())
		if c == nil {
			continue
		}
		send(t, c, 'x')
		c.Close()
		n++
	}
	if most > maxClients {
		t.Errorf("%d clients were attached", most)
	}
	for i.attached() > 1 {
		runtime.Gosched()
	}
	if n := i.clients(); n != 1 {
		t.Errorf("%d clients are left", n)
	}
	buf := make([]byte, 4*wire.MaxFrame)
	if _, err := io.ReadFull(i.stdin, buf); err != nil || bytes.Count(buf, []byte("s")) != len(buf) {
		t.Errorf("the container read %d bytes of the client that stayed, %v", bytes.Count(buf, []byte("s")), err)
	}
	stays.Close()
	for i.attached() > 0 {
		runtime.Gosched()
	}
	for runtime.NumGoroutine() > before { // goroutines that are about to end
		runtime.Gosched()
	}
}

// TestInputOfLeftClient checks a container that reads only after its client has disconnected, but in time. It receives all input.
func TestInputOfLeftClient(t *testing.T) {
	i := newInputTest(t)
	c := i.attach(t)
	send(t, c, 'a')
	send(t, c, 'b')
	c.Close()
	buf := make([]byte, 4*wire.MaxFrame)
	_, err := io.ReadFull(i.stdin, buf)
	if a, b := bytes.Count(buf, []byte("a")), bytes.Count(buf, []byte("b")); err != nil || a != len(buf)/2 || b != a {
		t.Errorf("the container read %d a, %d b, %v", a, b, err)
	}
	for i.attached() > 0 {
		runtime.Gosched()
	}
}

// TestFullClients checks that a client beyond the limit is rejected, and that another client may attach when one has left.
func TestFullClients(t *testing.T) {
	i := newInputTest(t)
	var clients []net.Conn
	for range maxClients {
		c := i.attach(t)
		if c == nil {
			t.Fatalf("only %d clients", len(clients))
		}
		clients = append(clients, c)
	}
	if i.attach(t) != nil {
		t.Error("too many clients are attached")
	}
	clients[0].Close()
	for clients[0] = i.attach(t); clients[0] == nil; {
		clients[0] = i.attach(t)
	}
	for _, c := range clients {
		c.Close()
	}
	for i.attached() > 0 {
		runtime.Gosched()
	}
}
