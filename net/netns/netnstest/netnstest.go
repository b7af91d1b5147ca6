package netnstest

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/islet-edge/islet/net/netns"
	"golang.org/x/sys/unix"
)

// New creates an empty network namespace whose loopback interface is up. It returns the namespace and its path, which is also valid for
// other processes. It skips the test if the user may not create namespaces.
func New(t testing.TB) (netns.NS, string) {
	t.Helper()
	ns, path, end := NewUntilEnd(t)
	t.Cleanup(end)
	return ns, path
}

// NewUntilEnd is like New, but does not remove the namespace at the end of the test. The caller must call the returned function, which
// closes the namespace.
func NewUntilEnd(t testing.TB) (ns netns.NS, path string, end func()) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root to make network namespaces")
	}
	opened := make(chan *os.File, 1)
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			failed <- err
			return
		}
		f, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			failed <- err
			return
		}
		opened <- f
	}()
	select {
	case err := <-failed:
		t.Fatalf("make a network namespace: %v", err)
		return netns.NS{}, "", nil
	case f := <-opened:
		path := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd())
		ns := netns.At(path)
		setLoopbackUp(t, ns)
		return ns, path, func() { f.Close() }
	}
}

func setLoopbackUp(t testing.TB, ns netns.NS) {
	t.Helper()
	h, err := ns.Netlink()
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err == nil {
		err = h.LinkSetUp(lo)
	}
	if err != nil {
		t.Fatal(err)
	}
}
