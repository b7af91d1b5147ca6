package vm

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/islet-edge/islet/test/figures"
	"github.com/islet-edge/islet/test/machine"
)

// requiredMetrics are the names that a machine with cgroup v2 and pods with limits has whatever they do: not
// those of blocks that somebody read or wrote.
var requiredMetrics = regexp.MustCompile(
	"^/metrics/(cadvisor (machine|container_(cpu|file|fs_usage|fs_limit|fs_inodes|last|memory|network|oom|pressure|processes|scrape|sockets|spec|start|threads|ulimits))|resource |slis )")

// waitColumns are the last three columns of a pod or container in islet top.
var waitColumns = regexp.MustCompile(`(?m)^p1-edge .* \d+% +\d+% +\d+% *$`)

// ask prints a page of a node by the port that needs no rights.
func ask(path string) string {
	return `bash -c 'exec 3<>/dev/tcp/127.0.0.1/10255 && printf "GET ` + path + ` HTTP/1.0\r\n\r\n" >&3 && cat <&3' `
}

// page is one of a node.
func page(v *VM, path string) string {
	v.t.Helper()
	out := v.Run(ask(path))
	head, body, ok := strings.Cut(out, "\r\n\r\n")
	if !ok || !strings.Contains(head, " 200 ") {
		v.t.Fatalf("%s: %.300s", path, out)
	}
	return body
}

// measured holds what a node serves on cgroup v2 against the guide, which is made from upstream's own
// list: names, types, labels, and with pressure nothing is missing. What a container has lost with its
// end is then the pod's.
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
			v.t.Errorf("%s does not say for what p1-edge waits:\n%s", command, out)
		}
	}
	if out, code := v.Try("islet exec p0-edge -- /podtool eat 200"); code == 0 {
		v.t.Fatalf("200 MiB were eaten in a pod that may have 64: %s", out)
	}
	v.Await(`islet pods -o json | grep '"reason": "OOMKilled"'`)
	waitForPods(v, 4)
	v.Await(ask("/metrics/cadvisor") + `| grep 'container_oom_events_total{container="",.*pod="p0-edge"} [1-9]'`)
}
