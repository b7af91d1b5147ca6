package cli

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/api"
)

func TestStatusOfAClusterNode(t *testing.T) {
	n, _ := node(t)
	n.Remove("uid-crash-pi")
	c := &api.Cluster{Server: "10.0.0.1:6443", Link: "Up", Pending: 2}
	n.Describe = func(s *api.Status) {
		s.Now = now
		s.Started = now.Add(-time.Hour)
		c.Since, c.ClientCertificate, c.ServingCertificate = now.Add(-5*time.Minute), now.AddDate(0, 2, 0), now.AddDate(1, 0, 0)
		s.Cluster = c
		s.Sources = []api.Source{{Name: "api", Origin: c.Server, Spoken: true, Pods: 3}}
	}
	check(t, n, run(t, n, "", "status"), 0, `Node:            pi
Ready:           yes
Control plane:   10.0.0.1:6443, up for 5m, 2 pods to report
Certificates:    client until 2026-03-02 03:04 UTC (59d), serving until 2027-01-02 03:04 UTC (365d)
Agent:           islet 1.2.3, up 60m
Clock:           2026-01-02 03:04:05 UTC
Runtime:         containerd 2.3.4, crun 1.8.1, cgroup v2, overlayfs, pods per shim: 16
Network:         ready
Pods:            2, 2 ready
Source api:      3 pods from 10.0.0.1:6443
`, "")

	connected := n.Describe
	n.Describe = func(s *api.Status) {
		connected(s)
		c.Link, c.Reason, c.Message, c.Pending = "Down", "ClientCertificateExpired", "the certificate is too old", 1
		c.ClientCertificate, c.ServingCertificate = now.AddDate(0, 0, -1), time.Time{}
		s.NotReady = []string{"the runtime has not answered for 3m"}
		s.Problems = []string{"pod default/web: ConfigMap default/conf: forbidden"}
		s.Events = []api.Event{
			{Type: "Normal", Reason: "Starting", Message: "Starting kubelet.", Count: 1, First: now, Last: now},
			{Type: "Warning", Reason: "Rebooted", Message: "Node pi has been rebooted", Count: 2, First: now.Add(-time.Hour), Last: now.Add(-time.Minute)},
		}
	}
	got := run(t, n, "", "status")
	for _, want := range []string{`
Ready:           NO
Control plane:   10.0.0.1:6443, DOWN for 5m, ClientCertificateExpired, 1 pod to report
Certificates:    client EXPIRED 2026-01-01 03:04 UTC
`, `
Recent warnings of the node:
  Type      Reason     Age                 Container   Message
  Warning   Rebooted   60s (x2 over 60m)               Node pi has been rebooted

Needs attention:
  - the node is not ready: the runtime has not answered for 3m
  - there has been no link to the API server for 5m (ClientCertificateExpired): the certificate is too old; pods keep running
  - the client certificate expired 24h ago
  - pod default/web: ConfigMap default/conf: forbidden
`} {
		if got.code != 1 || !strings.Contains(got.out, want) {
			t.Errorf("code %d\n%s\nlacks\n%s", got.code, got.out, want)
		}
	}
}

func TestDescribeShowsEventsAndProblems(t *testing.T) {
	n, _ := node(t)
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
`; got.code != 0 || !strings.HasSuffix(got.out, want) {
		t.Errorf("%s\nlacks\n%s", got.out, want)
	}
}

// TestClock checks that islet clock shows the node's clock and its floor. The command islet clock reset deletes the floor.
func TestClock(t *testing.T) {
	n, stop := node(t)
	defer stop()
	now := time.Date(2026, 11, 22, 7, 0, 0, 0, time.UTC)
	n.Time = api.Clock{Now: now, Machine: now.AddDate(-1, 0, 0), Floor: now, Refused: "2031-11-22T07:00:00Z: the server's own certificate is over"}
	got := run(t, n, "", "clock")
	for _, want := range []string{"Floor:", "2026-11-22T07:00:00Z", "Not trusted: 2031", "behind by 8760h"} {
		if got.code != 0 || !strings.Contains(got.out, want) {
			t.Errorf("%q is missing: %+v", want, got)
		}
	}
	if got = run(t, n, "", "clock", "reset"); got.code != 0 || strings.Contains(got.out, "Floor:") {
		t.Errorf("got %+v", got)
	}
	if got = run(t, n, "", "clock", "set"); got.code != 2 {
		t.Errorf("got %+v", got)
	}
}
