package ctrd

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// stranger starts a process that inherits a listening socket. It returns the process and the inode of the socket.
func stranger(t *testing.T, network, address string, args ...string) (*exec.Cmd, uint64) {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	in, hold, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("cat", "-")
	cmd.Args = append(cmd.Args[:1], append(args, "-")...)
	cmd.Stdin, cmd.ExtraFiles = in, []*os.File{in, in, f}
	err = cmd.Start()
	in.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hold.Close(); cmd.Process.Kill(); cmd.Wait() })
	return cmd, st.Ino
}

// TestForgedSocketTable checks a pod on the host's network that creates a socket whose name contains a newline. In the kernel's socket
// table, the rest of the name looks like a separate line. This line claims that the socket of a shim belongs to a process of the host. The
// agent must not kill this process. It must still kill a real shim that has lost its socket.
func TestForgedSocketTable(t *testing.T) {
	short, err := os.MkdirTemp("/tmp", "f") // a socket's name has at most 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(short)
	var log bytes.Buffer
	r := &Runtime{log: slog.New(slog.NewTextHandler(&log, nil)), dirs: dirs{sockets: short, containers: t.TempDir()}}
	r.shims = newShims(r)

	host, inode := stranger(t, "tcp", "127.0.0.1:0")
	forged, err := net.Listen("unix", fmt.Sprintf("@x\n0: 2 0 10000 1 1 %d %s", inode, filepath.Join(short, "7")))
	if err != nil {
		t.Fatal(err)
	}
	defer forged.Close()
	table, err := os.Open(socketTable)
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	if got := parseListeners(table, short); len(got) != 1 || got[fmt.Sprint(inode)] != "7" {
		t.Fatalf("the table has the sockets %q", got)
	}
	r.endShimsWithoutSocket()
	if log.Len() > 0 {
		t.Errorf("a process of the host (PID %d) was taken for a shim: %s", host.Process.Pid, &log)
	}

	orphan, _ := stranger(t, "unix", filepath.Join(short, "8"), "serve", "8")
	r.endShimsWithoutSocket()
	if err := orphan.Wait(); !strings.Contains(fmt.Sprint(err), "killed") {
		t.Errorf("a shim without its socket has ended with %v", err)
	}
}
