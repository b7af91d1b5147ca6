package hardware

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A uevent is what the kernel says when a device comes, goes or changes.
type uevent struct {
	action    string // add, remove, change, bind, unbind, move, online, offline
	path      string // below /sys
	subsystem string
	node      bool // it has a node in /dev
}

// maxUevent is more than the kernel sends at once: 2 KiB of variables, and the path.
const maxUevent = 16 << 10

// parseUevent reads a message of the kernel: ACTION@PATH, and variables, each with a zero at
// its end. Those of udev, which begin otherwise, are none.
func parseUevent(b []byte) (uevent, bool) {
	head, rest, ok := bytes.Cut(b, []byte{0})
	action, path, at := strings.Cut(string(head), "@")
	if !ok || !at || action == "" || !strings.HasPrefix(path, "/") {
		return uevent{}, false
	}
	e := uevent{action: action, path: path}
	for len(rest) > 0 {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte{0})
		switch name, value, _ := strings.Cut(string(line), "="); name {
		case "SUBSYSTEM":
			e.subsystem = value
		case "DEVNAME":
			e.node = value != ""
		}
	}
	return e, true
}

// news reports whether what is there may be other now. Interfaces of the network come and
// go with each pod and have no node; a driver that is bound makes nodes that tell of
// themselves.
func (e uevent) news() bool {
	return e.node && e.subsystem != "net" && e.subsystem != "queues"
}

// kernelGroup is that of the kernel's own messages; those of udev have another.
const kernelGroup = 1

// listenUevents opens a socket on which the kernel tells of devices. What others send there
// counts for nothing.
func listenUevents() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, fmt.Errorf("subscribe to the kernel's device events: %w", err)
	}
	f := os.NewFile(uintptr(fd), "uevents")
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: kernelGroup}); err != nil {
		f.Close()
		return nil, fmt.Errorf("subscribe to the kernel's device events: %w", err)
	}
	return f, nil
}

// follow calls changed for each message of the kernel that may matter, and when there were
// more than could be told, until ctx ends, which closes the socket.
func follow(ctx context.Context, socket *os.File, changed func()) error {
	defer context.AfterFunc(ctx, func() { socket.Close() })()
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	b := make([]byte, maxUevent)
	for {
		switch e, ok, err := receive(raw, b); {
		case errors.Is(err, unix.ENOBUFS): // some are lost
			changed()
		case err != nil:
			return fmt.Errorf("read the kernel's device events: %w", err)
		case ok && e.news():
			changed()
		}
	}
}

// receive waits for a message. It is none if another than the kernel sent it.
func receive(raw syscall.RawConn, b []byte) (e uevent, ok bool, err error) {
	var n int
	var from unix.Sockaddr
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		n, from, failed = unix.Recvfrom(int(fd), b, 0)
		return !errors.Is(failed, unix.EAGAIN)
	})
	if err = cmp.Or(err, failed); err != nil {
		return e, false, err
	}
	if sender, is := from.(*unix.SockaddrNetlink); !is || sender.Pid != 0 {
		return e, false, nil
	}
	e, ok = parseUevent(b[:n])
	return e, ok, nil
}
