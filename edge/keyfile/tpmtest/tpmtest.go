package tpmtest

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Start starts a TPM with its state in a directory, and returns the path of its socket and a function that ends it. It also ends with the
// test. Another start with the same directory is the same TPM after a reboot. The test is skipped if swtpm is not installed; make test
// installs it.
func Start(t testing.TB, dir string) (socket string, end func()) {
	t.Helper()
	program, err := exec.LookPath("swtpm")
	if err != nil {
		t.Skip("swtpm is not installed: packaging/deps.sh test installs it")
	}
	socket = filepath.Join(dir, "socket")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	f, err := l.(*net.UnixListener).File() // swtpm gets the socket itself, so it answers from the start
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(program, "socket", "--tpm2", "--tpmstate", "dir="+dir, "--server", "type=unixio,fd=3",
		"--flags", "not-need-init,startup-clear")
	c.ExtraFiles = []*os.File{f}
	if err := errors.Join(c.Start(), f.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
	end = func() {
		c.Process.Kill()
		c.Wait()
		os.Remove(socket)
	}
	t.Cleanup(end)
	return socket, end
}
