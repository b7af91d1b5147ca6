package session_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"regexp"
	"testing"
	"time"

	"github.com/islet-edge/islet/agent/cli"
	"github.com/islet-edge/islet/agent/cli/command"
)

func TestPortForward(t *testing.T) {
	n, _ := startNode(t)
	check(t, n, run(t, n, "", "port-forward", "web"), command.ExitUsage, "",
		"islet: port-forward needs a pod and a port: islet port-forward POD [LOCAL:]REMOTE\n")
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	done := make(chan int, 1)
	go func() {
		done <- cli.Main(ctx, []string{"port-forward", "web", ":80", ":81"}, env(n, nil, w, io.Discard))
		w.Close()
	}()
	lines, where := bufio.NewScanner(r), regexp.MustCompile(`^Forwarding from (\S+) -> 8[01]$`)
	for range 2 {
		lines.Scan()
		m := where.FindStringSubmatch(lines.Text())
		if m == nil {
			t.Fatalf("printed %q", lines.Text())
		}
		for i := range 3 {
			c, err := net.Dial("tcp", m[1])
			if err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprintf("hello %d", i)
			io.WriteString(c, want)
			c.(*net.TCPConn).CloseWrite()
			c.SetReadDeadline(time.Now().Add(time.Minute))
			if got, err := io.ReadAll(c); string(got) != want {
				t.Errorf("got %q, %v", got, err)
			}
			c.Close()
		}
	}
	cancel()
	if code := <-done; code != command.ExitSignal {
		t.Errorf("interrupted: code %d", code)
	}
}
