package uevent

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestParse(t *testing.T) {
	message := func(parts ...string) []byte { return []byte(strings.Join(parts, "\x00") + "\x00") }
	for _, c := range []struct {
		in   []byte
		want Event
		ok   bool
	}{
		{message("add@/devices/virtual/block/loop0", "ACTION=add", "SUBSYSTEM=block", "DEVNAME=loop0", "SEQNUM=1"), Event{"add", "/devices/virtual/block/loop0", "block", "loop0"}, true},
		{message("bind@/devices/x", "SUBSYSTEM=usb"), Event{"bind", "/devices/x", "usb", ""}, true},
		{message("add@/devices/virtual/net/veth0", "SUBSYSTEM=net", "DEVNAME=x"), Event{"add", "/devices/virtual/net/veth0", "net", "x"}, true},
		{message("libudev", "\xfe\xed\xca\xfe"), Event{}, false},
		{message("add@x"), Event{}, false},
		{message("@/x"), Event{}, false},
		{[]byte("add@/x"), Event{}, false},
		{nil, Event{}, false},
		{message("add@/x", "DEVNAME", "=", ""), Event{Action: "add", Path: "/x"}, true},
	} {
		got, ok := parse(c.in)
		if got != c.want || ok != c.ok {
			t.Errorf("%q: %+v, %v", c.in, got, ok)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("add@/devices/x\x00SUBSYSTEM=tty\x00DEVNAME=ttyUSB0\x00"))
	f.Add([]byte("libudev\x00\xfe\xed"))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, ok := parse(b)
		if ok != (e.Action != "" && strings.HasPrefix(e.Path, "/")) || !ok && e != (Event{}) {
			t.Errorf("%q: %+v, %v", b, e, ok)
		}
		if len(e.Action)+len(e.Path)+len(e.Subsystem)+len(e.Device) > len(b) {
			t.Errorf("%q: more fields than in the event: %+v", b, e)
		}
	})
}

// This helper makes the kernel send an event for an existing device, as udevadm trigger does. It returns the path of the device.
func ask(t *testing.T) (path string) {
	t.Helper()
	for _, dir := range []string{"/devices/virtual/mem/null", "/devices/virtual/block/loop7"} {
		if os.WriteFile("/sys"+dir+"/uevent", []byte("change"), 0) == nil {
			return dir
		}
	}
	t.Skip("the kernel sends no events")
	return ""
}

// TestForged checks that an event is ignored if a program instead of the kernel sent it.
func TestForged(t *testing.T) {
	socket, err := Listen()
	if err != nil {
		t.Skip(err)
	}
	defer socket.Close()
	raw, err := socket.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var to unix.Sockaddr
	raw.Control(func(fd uintptr) { to, err = unix.Getsockname(int(fd)) })
	if err != nil {
		t.Fatal(err)
	}
	forger, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(forger)
	forged := "add@/devices/forged\x00SUBSYSTEM=tty\x00DEVNAME=ttyX\x00"
	if err := unix.Sendto(forger, []byte(forged), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Pid: to.(*unix.SockaddrNetlink).Pid}); err != nil {
		t.Fatal(err)
	}
	path, b, unbelieved := ask(t), make([]byte, maxMessage), 0
	for {
		e, ok, err := receive(raw, b)
		switch {
		case err != nil:
			t.Fatal(err)
		case !ok:
			unbelieved++
		case e.Path == "/devices/forged":
			t.Fatal("a program's message is believed")
		case e.Path == path && e.Action == "change":
			if unbelieved == 0 {
				t.Error("the forged message did not come")
			}
			return
		}
	}
}

// TestLost checks that an overflow of the socket's buffer is reported.
func TestLost(t *testing.T) {
	socket, err := Listen()
	if err != nil {
		t.Skip(err)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 1) })
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		ask(t)
	}
	ctx, stop := context.WithCancel(t.Context())
	told, done := make(chan struct{}, 1000), make(chan error)
	go func() { done <- Watch(ctx, socket, func(Event) {}, func() { told <- struct{}{} }) }()
	<-told
	stop()
	if err := <-done; err == nil {
		t.Error("following ended without an error")
	}
}

// TestReadFails checks that the socket is closed after a read error.
func TestReadFails(t *testing.T) {
	notSocket, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := Watch(t.Context(), notSocket, nil, nil); !errors.Is(err, unix.ENOTSOCK) {
		t.Error(err)
	}
	if err := notSocket.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the file was not closed: %v", err)
	}
}
