package machine

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Dial opens a connection from inside the machine. It can be used as the DialContext of an
// http.Transport.
func (m *Machine) Dial(ctx context.Context, network, address string) (c net.Conn, err error) {
	err = InNetwork(m.host.Pid(), func() (err error) {
		c, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return c, err
}

// InNetwork calls f in the network namespace of a process. Sockets that f opens stay in that
// namespace.
func InNetwork(pid int, f func() error) error {
	runtime.LockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer own.Close()
	if err := enter(fmt.Sprintf("/proc/%d/ns/net", pid)); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	err = f()
	if unix.Setns(int(own.Fd()), unix.CLONE_NEWNET) == nil {
		runtime.UnlockOSThread() // if the thread stays locked, it ends with the goroutine
	}
	return err
}

func enter(path string) error {
	ns, err := os.Open(path)
	if err != nil {
		return err
	}
	defer ns.Close()
	return unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
}
