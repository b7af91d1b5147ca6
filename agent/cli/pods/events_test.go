package pods_test

import (
	"bufio"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/agent/cli"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/internal/api"
)

func TestEvents(t *testing.T) {
	n, _ := startNode(t)
	check(t, n, run(t, n, "", "events"), 0, "", "No events.\n")
	event := func(pod, kind, reason string, ago time.Duration, count int32) api.Event {
		e := api.Event{Pod: pod, Type: kind, Reason: reason, Message: "m\x1b", Count: count, First: now.Add(-time.Hour), Last: now.Add(-ago)}
		if pod != "" {
			e.Namespace, e.Container = "default", "c"
		}
		return e
	}
	list := []api.Event{event("web-pi", "Warning", "BackOff", 10*time.Second, 7), event("", "Normal", "Starting", time.Minute, 1), event("crash-pi", "Normal", "Pulled", 30*time.Second, 1)}
	news := make(chan []api.Event, 1)
	n.Events = func() []api.Event {
		select {
		case list = <-news:
		default:
		}
		return list
	}
	check(t, n, run(t, n, "", "events"), 0, `LAST SEEN           TYPE      REASON     OBJECT           MESSAGE
60s                 Normal    Starting   node             m?
30s                 Normal    Pulled     pod/crash-pi c   m?
10s (x7 over 60m)   Warning   BackOff    pod/web-pi c     m?
`, "")
	if got := run(t, n, "", "events", "web", "--no-headers"); got.Code != 0 || strings.Count(got.Out, "\n") != 1 ||
		!strings.Contains(got.Out, "BackOff") {
		t.Errorf("of a pod: %+v", got)
	}
	if got := run(t, n, "", "get", "events", "--warnings", "-o", "json"); got.Code != 0 || strings.Count(got.Out, "reason") != 1 {
		t.Errorf("warnings as JSON: %+v", got)
	}

	// The command pods -w prints the existing pods, then each new one.
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	done := make(chan int, 1)
	go func() {
		done <- cli.Main(ctx, []string{"events", "-w", "--no-headers"}, env(n, nil, w, io.Discard))
		w.Close()
	}()
	lines := bufio.NewScanner(r)
	for _, want := range []string{"Starting", "Pulled", "BackOff", "Killing"} {
		if want == "Killing" {
			news <- append(list, event("web-pi", "Normal", "Killing", 0, 1))
		}
		if !lines.Scan() || !strings.Contains(lines.Text(), want) {
			t.Fatalf("%q instead of %s", lines.Text(), want)
		}
	}
	cancel()
	r.Close()
	if code := <-done; code != command.ExitSignal {
		t.Errorf("an interrupted watch: code %d", code)
	}
}
