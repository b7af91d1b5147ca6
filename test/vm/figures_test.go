package vm

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/islet-edge/islet/test/figures"
	"github.com/islet-edge/islet/test/machine"
)

// requiredMetrics matches the metrics that a machine with cgroup v2 and pods with limits always has. I/O metrics are excluded, because
// they need block I/O.
var requiredMetrics = regexp.MustCompile(
	"^/metrics/(cadvisor (machine|container_(cpu|file|fs_usage|fs_limit|fs_inodes|last|memory|network|oom|pressure|processes|scrape|sockets|spec|start|threads|ulimits))|resource |slis )")

// waitColumns matches the three pressure columns of pod p1 in islet top.
var waitColumns = regexp.MustCompile(`(?m)^p1-edge .* \d+% +\d+% +\d+% *$`)

// ask returns a command that prints a page from the read-only port of a node.
func ask(path string) string {
	return `bash -c 'exec 3<>/dev/tcp/127.0.0.1/10255 && printf "GET ` + path + ` HTTP/1.0\r\n\r\n" >&3 && cat <&3' `
}

// page returns a page of a node.
func page(v *VM, path string) string {
	v.t.Helper()
	out := v.Run(ask(path))
	head, body, ok := strings.Cut(out, "\r\n\r\n")
	if !ok || !strings.Contains(head, " 200 ") {
		v.t.Fatalf("%s: %.300s", path, out)
	}
	return body
}

// measured compares the names, types and labels of the metrics on cgroup v2 with the documentation, which is generated from upstream's
// list. All metrics that match requiredMetrics must exist. The OOM kills of an ended container must be counted for the pod.
func measured(v *VM) {
	v.t.Helper()
	guide, err := os.ReadFile(filepath.Join(machine.Root(v.t), "docs/metrics.md"))
	if err != nil {
		v.t.Fatal(err)
	}
	pages := map[string]string{}
	for _, path := range figures.Pages {
		pages[path] = page(v, path)
	}
	wrong, unseen := figures.Compare(figures.Documented(string(guide)), pages)
	for _, w := range wrong {
		v.t.Error(w)
	}
	for _, name := range unseen {
		if requiredMetrics.MatchString(name) {
			v.t.Errorf("no page has %s", name)
		}
	}
	for _, command := range []string{"islet top -o wide", "islet top --containers -o wide"} {
		if out := v.Run(command); !waitColumns.MatchString(out) {
			v.t.Errorf("%s does not show the pressure of p1-edge:\n%s", command, out)
		}
	}
	if out, code := v.Try("islet exec p0-edge -- /podtool eat 200"); code == 0 {
		v.t.Fatalf("a process allocated 200 MiB in a pod with a limit of 64 MiB: %s", out)
	}
	v.Await(`islet pods -o json | grep '"reason": "OOMKilled"'`)
	waitForPods(v, 4)
	v.Await(ask("/metrics/cadvisor") + `| grep 'container_oom_events_total{container="",.*pod="p0-edge"} [1-9]'`)
}
