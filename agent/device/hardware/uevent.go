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

// A uevent is the kernel's message about a device that was added, removed or changed.
type uevent struct {
	action    string // add, remove, change, bind, unbind, move, online, offline
	path      string // below /sys
	subsystem string
	node      bool // the device has a device node
}

// maxUevent exceeds the size of any message of the kernel, which has 2 KiB of variables and the path.
const maxUevent = 16 << 10

// parseUevent parses a message of the kernel: ACTION@PATH and variables, each terminated by a zero byte. It returns
// false for a message of udev, which has another header.
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

// isRelevant reports whether the message may affect the devices. Network interfaces, which change with each pod, have
// no device node. If a driver that is newly bound creates nodes, there is a separate message for each node.
func (e uevent) isRelevant() bool {
	return e.node && e.subsystem != "net" && e.subsystem != "queues"
}

// kernelGroup is the multicast group of the kernel's messages. udev uses another group.
const kernelGroup = 1

// listenUevents opens a socket that receives the kernel's uevents. receiveUevent ignores messages from other senders.
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

// watchUevents calls the function changed for each relevant message of the kernel. It also calls the function when
// messages were lost. When ctx ends, or a read fails, it closes the socket and returns.
func watchUevents(ctx context.Context, socket *os.File, changed func()) error {
	defer socket.Close()
	defer context.AfterFunc(ctx, func() { socket.Close() })()
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	b := make([]byte, maxUevent)
	for {
		switch e, ok, err := receiveUevent(raw, b); {
		case errors.Is(err, unix.ENOBUFS): // messages were lost
			changed()
		case err != nil:
			return fmt.Errorf("read the kernel's device events: %w", err)
		case ok && e.isRelevant():
			changed()
		}
	}
}

// receiveUevent waits for a message. It returns false if the sender of the message is not the kernel.
func receiveUevent(raw syscall.RawConn, b []byte) (e uevent, ok bool, err error) {
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
