package netns

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ownPath is the path of the calling thread's namespace.
const ownPath = "/proc/thread-self/ns/net"

// NS is a network namespace. The zero value is the process's own namespace.
type NS struct{ path string }

// At returns the namespace at a path: a bind mount, or /proc/<pid>/ns/net.
func At(path string) NS { return NS{path} }

// Path returns a path of the namespace that threads of this process can open.
func (n NS) Path() string {
	if n.path == "" {
		return ownPath
	}
	return n.path
}

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
	target, err := n.Open()
	if err != nil {
		return err
	}
	defer target.Close()
	var (
		result   error
		panicked any
		done     = make(chan struct{})
	)
	go func() {
		defer close(done)
		defer func() { panicked = recover() }()
		result = onThread(target, f)
	}()
	<-done
	if panicked != nil {
		panic(panicked) // panic in the caller's goroutine, so that the caller can recover
	}
	return result
}

// onThread moves the current thread to the target namespace, calls a function, and moves the thread back. If it cannot move the thread
// back, the thread stays locked to the goroutine and ends together with it. No other goroutine can then run on that thread.
func onThread(target *os.File, f func() error) error {
	runtime.LockOSThread()
	back, err := os.Open(ownPath)
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open own network namespace: %w", err)
	}
	defer back.Close()
	if err := unix.Setns(int(target.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace %s: %w", target.Name(), err)
	}
	defer func() {
		if unix.Setns(int(back.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
	}()
	return f()
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
	if err != nil {
		return nil, fmt.Errorf("netlink socket in %s: %w", n.Path(), err)
	}
	return h, nil
}

// A Sysctl is the name of a file below /proc/sys/net, and its value. If Optional is true, a missing file is not an error.
type Sysctl struct {
	Name, Value string
	Optional    bool
}

// Set writes the sysctls whose current values differ. It does so on a thread in the namespace, because the kernel shows each thread the
// /proc/sys/net of its own namespace.
func (n NS) Set(values ...Sysctl) error {
	_, err := n.Swap(values...)
	return err
}

// Swap does the same as Set. It returns the changed sysctls with their previous values, so that the caller can restore them. After an
// error, it returns the sysctls that it has already changed.
func (n NS) Swap(values ...Sysctl) (before []Sysctl, err error) {
	err = n.Do(func() error {
		for _, s := range values {
			previous, err := s.write()
			if err != nil {
				return err
			}
			if previous != s.Value {
				before = append(before, Sysctl{Name: s.Name, Value: previous, Optional: s.Optional})
			}
		}
		return nil
	})
	return before, err
}

// DifferingSysctls returns the sysctls whose current values differ from the given ones. It ignores sysctls that the kernel does not have.
func (n NS) DifferingSysctls(values ...Sysctl) (out []Sysctl, err error) {
	err = n.Do(func() error {
		for _, s := range values {
			content, err := os.ReadFile("/proc/sys/net/" + s.Name)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("read sysctl net.%s: %w", s.Name, err)
			}
			if err == nil && strings.TrimSuffix(string(content), "\n") != s.Value {
				out = append(out, s)
			}
		}
		return nil
	})
	return out, err
}

// write sets the sysctl and returns its previous value. For an optional sysctl that does not exist, it returns the new value.
func (s Sysctl) write() (previous string, err error) {
	path := "/proc/sys/net/" + s.Name
	content, err := os.ReadFile(path)
	if previous = strings.TrimSuffix(string(content), "\n"); err == nil && previous == s.Value {
		return previous, nil
	}
	err = os.WriteFile(path, []byte(s.Value), 0)
	if s.Optional && errors.Is(err, os.ErrNotExist) {
		return s.Value, nil
	}
	if err != nil {
		return "", fmt.Errorf("set sysctl net.%s=%s: %w", s.Name, s.Value, err)
	}
	return previous, nil
}
