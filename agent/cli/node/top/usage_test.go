package top_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/kubelet/server"
	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
	"github.com/islet-edge/islet/internal/api"
)

func TestTop(t *testing.T) {
	n, _ := startNode(t)
	check(t, n, run(t, n, "", "top", "pods", "--containers", "-A"), 0, `NAMESPACE   NAME       CONTAINER   CPU(cores)   MEMORY(bytes)
default     crash-pi   app         100m         3Mi
default     dns-pi     dns         100m         3Mi
default     web-pi     nginx       100m         3Mi
default     web-pi     sidecar     100m         3Mi
`, "")
}

func TestTopAsJSON(t *testing.T) {
	n, _ := startNode(t)
	if got := run(t, n, "", "top", "web", "-o", "json"); got.Code != 0 || !strings.Contains(got.Out, `"name": "web-pi"`) ||
		strings.Contains(got.Out, "crash-pi") || !strings.Contains(got.Out, `"usageNanoCores"`) {
		t.Errorf("top -o json: %+v", got)
	}
	if got := run(t, n, "", "top", "node", "-o", "yaml"); got.Code != 0 || !strings.Contains(got.Out, "nodeName: pi") {
		t.Errorf("top node -o yaml: %+v", got)
	}
	if got := run(t, n, "", "top", "web", "-o", "wide"); got.Code != 0 || !strings.Contains(got.Out, "READ/s") {
		t.Errorf("top -o wide: %+v", got)
	}
	check(t, n, run(t, n, "", "top", "-o", "name"), command.ExitUsage, "", "islet: output \"name\": must be wide, json or yaml\n")
}

// processUsage is a server.Usage with processes. Each call advances the time by a second, in which a process uses a
// quarter of a core.
type processUsage struct {
	server.Usage
	calls int
}

func (u *processUsage) PodProcesses(_ context.Context, uid string) (api.Processes, error) {
	out := api.Processes{At: now.Add(time.Duration(u.calls) * time.Second), Whole: true, List: []api.Process{
		{Container: "side", PID: 1, HostPID: 90, State: "S", Threads: 1, CPU: time.Second, Memory: 1 << 20, Age: time.Hour, Command: "sleep\x1b[2J 5"},
		{Container: "app", PID: 7, HostPID: 77, User: 1000, State: "R", Threads: 3, CPU: time.Duration(u.calls) * 250 * time.Millisecond,
			Memory: 9 << 20, Age: time.Minute, Command: strings.Repeat("x", 500)},
	}}
	u.calls++
	if uid != "uid-web" {
		out.List = nil
	}
	return out, nil
}

func TestTopProcesses(t *testing.T) {
	n, _ := servertest.Start(t, func(c *server.Config) { c.Usage = &processUsage{Usage: c.Usage} })
	n.Pod("web", now, "app", "side")
	n.Pod("idle", now, "app")
	check(t, n, run(t, n, "", "top", "processes", "web"), 0,
		"CONTAINER   PID   HOST PID   UID    STATE   THREADS   CPU(cores)   MEMORY(bytes)   AGE   COMMAND\n"+
			"app         7     77         1000   R       3         250m         9Mi             60s   "+strings.Repeat("x", 197)+"...\n"+
			"side        1     90         0      S       1         0m           1Mi             60m   sleep?[2J 5\n", "")
	if got := run(t, n, "", "top", "ps", "web", "-c", "side", "--no-headers", "-o", "wide"); got.Code != 0 ||
		strings.Count(got.Out, "\n") != 1 {
		t.Errorf("one container: %+v", got)
	}
	if got := run(t, n, "", "top", "processes", "web", "-o", "json"); got.Code != 0 || !strings.Contains(got.Out, `"hostPID": 77`) {
		t.Errorf("JSON: %+v", got)
	}
	check(t, n, run(t, n, "", "top", "processes", "idle"), 0, "", "No running processes.\n")
	check(t, n, run(t, n, "", "top", "processes", "web", "-c", "none"), command.ExitNotFound, "",
		"islet: pod default/web has no container \"none\": it has app, side\n")
	for _, args := range [][]string{{"processes"}, {"processes", "a", "b"}, {"web", "-c", "app"}} {
		if got := run(t, n, "", append([]string{"top"}, args...)...); got.Code != command.ExitUsage {
			t.Errorf("%q: %+v", args, got)
		}
	}
}
