package pods_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/internal/api"
)

func TestPods(t *testing.T) {
	n, _ := startNode(t)
	check(t, n, run(t, n, "", "pods"), 0, `NAME       READY   STATUS             RESTARTS      AGE
crash-pi   0/1     CrashLoopBackOff   3 (90s ago)   3h
web-pi     2/2     Running            0             5m3s
`, "")
	check(t, n, run(t, n, "", "pods", "-A", "-o", "wide"), 0,
		`NAMESPACE     NAME       READY   STATUS             RESTARTS      AGE    IP          NODE   SOURCE   ORIGIN
default       crash-pi   0/1     CrashLoopBackOff   3 (90s ago)   3h     10.42.0.7   pi     local    <none>
default       web-pi     2/2     Running            0             5m3s   10.42.0.7   pi     local    <none>
kube-system   dns-pi     1/1     Running            0             2d     10.42.0.7   pi     file     <none>
`, "")
	check(t, n, run(t, n, "", "pods", "dns", "-o", "name"), 0, "pod/dns-pi\n", "")
	check(t, n, run(t, n, "", "pods", "-n", "nowhere"), 0, "", "No pods in namespace nowhere; there are 3 in others: use -A.\n")
	check(t, n, run(t, n, "", "pods", "-l", "no=such"), 0, "", "No pods match the labels no=such.\n")
	check(t, n, run(t, n, "", "status", "web"), command.ExitUsage, "",
		"islet: islet status takes no arguments, not \"web\"\nSee 'islet status --help'\n")
	check(t, n, run(t, n, "", "pods", "nothing"), command.ExitNotFound, "", "islet: pod \"nothing\" not found\n")
	check(t, n, run(t, n, "", "pods", "-o", "xml"), command.ExitUsage, "", "islet: output \"xml\": must be wide, json, yaml or name\n")
	if got := run(t, n, "", "pods", "web", "-o", "yaml"); got.Code != 0 ||
		!strings.HasPrefix(got.Out, "apiVersion: v1\nkind: Pod\nmetadata:\n") {
		t.Errorf("yaml: %d %s", got.Code, got.Out)
	}
}

func TestDescribe(t *testing.T) {
	n, _ := startNode(t)
	got := run(t, n, "", "describe", "pod", "crash")
	got.Out = regexp.MustCompile(`[A-Z][a-z]{2}, \d\d .*`).ReplaceAllString(got.Out, "TIME")
	check(t, n, got, 0, `Name:             crash-pi
Namespace:        default
Priority:         0
Node:             pi/192.0.2.1
Start Time:       TIME
Labels:           <none>
Annotations:      kubernetes.io/config.source: local
Status:           Running
IP:               10.42.0.7
IPs:
  IP:  10.42.0.7
Containers:
  app:
    Container ID:
    Image:          localhost/app:1
    Image ID:
    Port:           <none>
    Host Port:      <none>
    State:          Waiting
      Reason:       CrashLoopBackOff
    Last State:     Terminated
      Exit Code:    1
      Started:      TIME
      Finished:     TIME
    Ready:          False
    Restart Count:  3
    Environment:    <none>
    Mounts:         <none>
Conditions:
  Type    Status   Reason
  Ready   True
Volumes:          <none>
QoS Class:        BestEffort
Node-Selectors:   <none>
Tolerations:      <none>
Events:           <none>
`, "")
}

func TestDescribeShowsEventsAndProblems(t *testing.T) {
	n, _ := startNode(t)
	web := n.Pod("web-pi", now, "nginx").UID
	n.Details = func(uid types.UID) api.Details {
		if uid != web {
			return api.Details{}
		}
		hooks := []api.FailedHook{{Container: "nginx", At: now.Add(-time.Minute), Message: "exited with 3, message: \x1b"}}
		return api.Details{Problems: []string{"Secret default/key: forbidden"}, Hooks: hooks, Events: []api.Event{
			{Type: "Normal", Reason: "Started", Container: "nginx", Message: "Container started", Count: 1, First: now.Add(-3 * time.Minute), Last: now.Add(-3 * time.Minute)},
			{Type: "Warning", Reason: "BackOff", Container: "nginx", Message: "Back-off\x1b", Count: 4, First: now.Add(-2 * time.Minute), Last: now.Add(-5 * time.Second)},
		}}
	}
	got := run(t, n, "", "describe", "web")
	if want := `
Problems:
  Secret default/key: forbidden
Failed Hooks:
  postStart of nginx, 60s ago: exited with 3, message: ?
Events:
  Type      Reason    Age               Container   Message
  Normal    Started   3m                nginx       Container started
  Warning   BackOff   5s (x4 over 2m)   nginx       Back-off?
`; got.Code != 0 || !strings.HasSuffix(got.Out, want) {
		t.Errorf("%s\nlacks\n%s", got.Out, want)
	}
}

func TestSelector(t *testing.T) {
	n, _ := startNode(t)
	for name, labels := range map[string]map[string]string{"web-pi": {"app": "web"}, "dns-pi": {"app": "dns"}} {
		i := slices.IndexFunc(n.List(), func(p *v1.Pod) bool { return p.Name == name })
		p := n.List()[i].DeepCopy()
		p.Labels = labels
		n.Put(p)
	}
	check(t, n, run(t, n, "", "pods", "-A", "-l", "app", "-o", "name"), 0, "pod/web-pi\npod/dns-pi\n", "")
	check(t, n, run(t, n, "", "pods", "-l", "app=web", "-o", "name"), 0, "pod/web-pi\n", "")
	check(t, n, run(t, n, "", "pods", "-l", "app notin (web)", "-o", "name"), 0, "pod/crash-pi\n", "")
	if got := run(t, n, "", "top", "-l", "app=web", "--no-headers"); got.Code != 0 || !strings.HasPrefix(got.Out, "web-pi ") ||
		strings.Count(got.Out, "\n") != 1 {
		t.Errorf("top -l: %+v", got)
	}
	if got := run(t, n, "", "pods", "-l", "app in web"); got.Code != command.ExitUsage || !strings.Contains(got.Err, `selector "app in web"`) {
		t.Errorf("a wrong selector: %+v", got)
	}
	check(t, n, run(t, n, "", "delete", "-l", "app=web", "--wait=false"), 0, "pod/web-pi deleted\n", "")
}
