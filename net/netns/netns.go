package netns

import (
	"fmt"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ownPath is the path of the calling thread's namespace.
const ownPath = "/proc/thread-self/ns/net"

// NS is a network namespace. The zero value is the process's own namespace.
type NS struct {
	path   string
	counts *Counts // of tests; may be nil
}

// At returns the namespace at a path: a bind mount, or /proc/<pid>/ns/net.
func At(path string) NS { return NS{path: path} }

// Path returns a path of the namespace that threads of this process can open.
func (n NS) Path() string {
	if n.path == "" {
		return ownPath
	}
	return n.path
}

// IsOwn reports whether n is the process's own namespace, which a thread need not enter.
func (n NS) IsOwn() bool { return n.path == "" }

// Open opens the namespace. Netlink messages can contain the file descriptor. The error wraps fs.ErrNotExist if the namespace is gone.
func (n NS) Open() (*os.File, error) {
	f, err := os.Open(n.Path())
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	return f, nil
}

// Do calls a function on a thread in the namespace and returns its error. Processes that the function starts also run in the namespace, but
// goroutines do not.
func (n NS) Do(f func() error) error {
	if n.path == "" {
		return f()
	}
	return n.Visit(func(int) error { return f() })
}

// Visit is like Do. It passes the file descriptor of the namespace to the function, for netlink messages. Each visit costs six
// system calls and two switches between threads, so the caller should do everything in one visit.
func (n NS) Visit(f func(namespace int) error) error {
	target, err := openFile(n.Path(), unix.O_RDONLY)
	if err != nil {
		return fmt.Errorf("open network namespace: %w", err)
	}
	defer unix.Close(target)
	if n.path == "" {
		return f(target)
	}
	n.counts.addVisit()
	var (
		result   error
		panicked any
		done     = make(chan struct{})
	)
	go func() {
		defer close(done)
		defer func() { panicked = recover() }()
		result = n.onThread(target, f)
	}()
	<-done
	if panicked != nil {
		panic(panicked) // panic in the caller's goroutine, so that the caller can recover
	}
	return result
}

// onThread moves the current thread to the target namespace, calls a function, and moves the thread back. If it cannot move the thread
// back, the thread stays locked to the goroutine and ends together with it. No other goroutine can then run on that thread.
func (n NS) onThread(target int, f func(namespace int) error) error {
	runtime.LockOSThread()
	back, err := openFile(ownPath, unix.O_RDONLY)
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open own network namespace: %w", err)
	}
	defer unix.Close(back)
	if err := unix.Setns(target, unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace %s: %w", n.path, err)
	}
	defer func() {
		if unix.Setns(back, unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
	}()
	return f(target)
}

// openFile opens a file without an os.File, which would cost four system calls more.
func openFile(path string, flags int) (int, error) {
	for {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
		if err == nil {
			return fd, nil
		}
		if err != unix.EINTR {
			return -1, &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// Netlink opens a route netlink handle in the namespace. The caller closes it.
func (n NS) Netlink() (*netlink.Handle, error) { return n.openHandle(unix.NETLINK_ROUTE) }

// Conntrack opens a netfilter netlink handle in the namespace, for the connection tracking table.
// The caller closes it.
func (n NS) Conntrack() (*netlink.Handle, error) { return n.openHandle(unix.NETLINK_NETFILTER) }

func (n NS) openHandle(family int) (h *netlink.Handle, err error) {
	err = n.Do(func() error {
		h, err = netlink.NewHandle(family)
		return err
	})
	n.counts.addSocket()
	if err != nil {
		return nil, fmt.Errorf("netlink socket in %s: %w", n.Path(), err)
	}
	return h, nil
}
