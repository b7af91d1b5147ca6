package uevent

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

// An Event is the kernel's message about a device that was added, removed or changed.
type Event struct {
	Action    string // add, remove, change, bind, unbind, move, online, offline
	Path      string // below /sys
	Subsystem string
	Device    string // the device node below /dev; empty if the device has none
}

// maxMessage exceeds the size of any message of the kernel, which has 2 KiB of variables and the path.
const maxMessage = 16 << 10

// parse parses a message of the kernel: ACTION@PATH and variables, each terminated by a zero byte. It returns false for a message of udev,
// which has another header.
func parse(b []byte) (Event, bool) {
	head, rest, ok := bytes.Cut(b, []byte{0})
	action, path, at := strings.Cut(string(head), "@")
	if !ok || !at || action == "" || !strings.HasPrefix(path, "/") {
		return Event{}, false
	}
	e := Event{Action: action, Path: path}
	for len(rest) > 0 {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte{0})
		switch name, value, _ := strings.Cut(string(line), "="); name {
		case "SUBSYSTEM":
			e.Subsystem = value
		case "DEVNAME":
			e.Device = value
		}
	}
	return e, true
}

// kernelGroup is the multicast group of the kernel's messages. udev uses another group.
const kernelGroup = 1

// Listen opens a socket that receives the kernel's messages. Watch ignores messages from other senders.
func Listen() (*os.File, error) {
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

// Watch calls the function received for each message of the kernel, and the function lost when messages were lost. When ctx ends, or a read
// fails, it closes the socket and returns.
func Watch(ctx context.Context, socket *os.File, received func(Event), lost func()) error {
	defer socket.Close()
	defer context.AfterFunc(ctx, func() { socket.Close() })()
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	b := make([]byte, maxMessage)
	for {
		switch e, ok, err := receive(raw, b); {
		case errors.Is(err, unix.ENOBUFS):
			lost()
		case err != nil:
			return fmt.Errorf("read the kernel's device events: %w", err)
		case ok:
			received(e)
		}
	}
}

// receive waits for a message. It returns false if the sender of the message is not the kernel.
func receive(raw syscall.RawConn, b []byte) (e Event, ok bool, err error) {
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
	e, ok = parse(b[:n])
	return e, ok, nil
}
