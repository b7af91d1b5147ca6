package logs_test

import (
	"testing"

	"github.com/islet-edge/islet/agent/cli/command"
)

func TestLogs(t *testing.T) {
	n, _ := startNode(t)
	n.Log(t, "web-pi-nginx", "one", "two", "three")
	n.Log(t, "web-pi-sidecar", "side")
	n.Log(t, "crash-pi-app", "why I died")
	defaulted := "Defaulted container \"nginx\" out of: nginx, sidecar\n"
	check(t, n, run(t, n, "", "logs", "web"), 0, "one\ntwo\nthree\n", defaulted)
	check(t, n, run(t, n, "", "logs", "--tail=1", "--timestamps", "default/web-pi", "-c", "nginx"), 0,
		"2026-11-21T02:03:04.000000005Z three\n", "")
	check(t, n, run(t, n, "", "logs", "web", "--all-containers", "--prefix", "--tail", "1"), 0,
		"[pod/web-pi/nginx] three\n[pod/web-pi/sidecar] side\n", "")
	check(t, n, run(t, n, "", "logs", "-p", "crash"), 0, "why I died\n", "")
	check(t, n, run(t, n, "", "logs", "web", "-c", "none"), command.ExitNotFound, "",
		"islet: pod default/web-pi has no container \"none\": it has nginx, sidecar\n")
	check(t, n, run(t, n, "", "logs", "-p", "web", "-c", "nginx"), 1, "",
		"islet: previous terminated container \"nginx\" in pod \"web-pi\" not found\n")
}
