package main

import (
	"bufio"
	"context"
	"net"
	"path/filepath"
	"testing"
)

// TestProxy checks that the proxy joins each connection of one side with one connection of the other side, in any order. It must drop
// connections that were closed while they waited.
func TestProxy(t *testing.T) {
	path := "unix://" + filepath.Join(t.TempDir(), "s")
	in, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	out, err := listen("tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- runProxy(ctx, in, out) }()
	dial := func(l net.Listener) net.Conn {
		t.Helper()
		c, err := net.Dial(l.Addr().Network(), l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	say := func(from, to net.Conn, line string) {
		t.Helper()
		if _, err := from.Write([]byte(line + "\n")); err != nil {
			t.Fatal(err)
		}
		if got, err := bufio.NewReader(to).ReadString('\n'); err != nil || got != line+"\n" {
			t.Fatalf("%q, %v instead of %q", got, err, line)
		}
	}
	dead := dial(out)
	dead.Write([]byte("before"))
	dead.Close()
	driver, caller := dial(out), dial(in)
	say(caller, driver, "question")
	say(driver, caller, "answer")
	second := dial(in)
	other := dial(out)
	say(second, other, "question two")
	say(other, second, "answer two")
	impatient := dial(in)
	impatient.Close()
	third := dial(in)
	patient := dial(out)
	say(third, patient, "question three")
	driver.Close()
	if n, err := caller.Read(make([]byte, 1)); err == nil {
		t.Fatalf("read %d bytes from a closed connection", n)
	}
	say(second, other, "is there")
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if _, err := second.Read(make([]byte, 1)); err == nil {
		t.Fatal("a connection is open after the end of the proxy")
	}
}
