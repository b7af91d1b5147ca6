package node_test

import (
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/internal/api"
)

func TestStatus(t *testing.T) {
	n, _ := startNode(t)
	n.Describe = func(s *api.Status) {
		s.Now = time.Date(2026, 11, 21, 2, 3, 4, 0, time.UTC)
		s.Started = s.Now.Add(-26 * time.Hour)
		s.Network.Config, s.Network.PodCIDRs = "built in", []string{"10.42.0.0/24"}
		s.Network.Repairs = &api.Repairs{Count: 2, Last: s.Now.Add(-5 * time.Minute), What: "bridge islet0"}
		s.Sources = []api.Source{{Name: "file", Origin: "/etc/kubernetes/manifests", Spoken: true, Pods: 1}, {Name: "local", Spoken: true, Pods: 2}}
		s.Store.Path = "/var/lib/islet/islet.db"
		s.Disks = []api.Disk{{Path: "/var/lib/islet", Total: 32 << 30, Free: 20 << 30}}
	}
	n.Log(t, "crash-pi-app", "begins", "no \x1b[31mroom")
	want := `Node:                  pi
Ready:                 yes
Agent:                 islet 1.2.3, up 26h
Clock:                 2026-11-21 02:03:04 UTC
Runtime:               containerd 2.3.4, crun 1.8.1, cgroup v2, overlayfs, pods per shim: 16
Network:               built in, 10.42.0.0/24
Network repaired:      2 items, the last one 5m ago: bridge islet0
Pods:                  3, 3 ready, 1 stuck
Source file:           1 pod from /etc/kubernetes/manifests
Source local:          2 pods
Disk /var/lib/islet:   20.0GiB of 32.0GiB free
Store:                 /var/lib/islet/islet.db

Needs attention:
  - pod default/crash-pi: container app: CrashLoopBackOff: exit code 1 (Error), 3 restarts, the next start is delayed; the last line of its log: "no \x1b[31mroom"
      -> islet logs crash-pi
`
	check(t, n, run(t, n, "", "status"), 1, want, "")
	n.Remove("uid-crash-pi")
	want, _, _ = strings.Cut(strings.Replace(want, "3, 3 ready, 1 stuck", "2, 2 ready", 1), "\nNeeds")
	check(t, n, run(t, n, "", "status"), 0, want, "")
	healthy := n.Describe
	n.Describe = func(s *api.Status) {
		healthy(s)
		s.Sources[0].Problems = []api.Problem{{Origin: "/etc/kubernetes/manifests/x.yaml", Field: "spec.containers[0].image", Message: "Required value"}}
		s.Disks[0].Free = 1 << 20
	}
	got := run(t, n, "", "status")
	if got.Code != 1 || !strings.HasSuffix(got.Out, `
Needs attention:
  - /etc/kubernetes/manifests/x.yaml: spec.containers[0].image: Required value
  - the disk of /var/lib/islet is nearly full: 1.0MiB of 32.0GiB free
`) {
		t.Errorf("status with problems: %d\n%s", got.Code, got.Out)
	}
}

func TestStatusOfAClusterNode(t *testing.T) {
	n, _ := startNode(t)
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
		if got.Code != 1 || !strings.Contains(got.Out, want) {
			t.Errorf("code %d\n%s\nlacks\n%s", got.Code, got.Out, want)
		}
	}
}

// TestStatusOfConfiguration checks that islet status names the configuration in use, and not only the node's own files.
func TestStatusOfConfiguration(t *testing.T) {
	n, _ := startNode(t)
	n.Remove("uid-crash-pi")
	for received, want := range map[string]string{
		"":                                "/etc/islet/edge.yaml",
		"4f2a from bundle kiosk number 2": "4f2a from bundle kiosk number 2 (islet config show); the node's own: /etc/islet/edge.yaml",
	} {
		n.Describe = func(s *api.Status) { s.Files, s.Received = []string{"/etc/islet/edge.yaml"}, received }
		got := run(t, n, "", "status")
		_, row, _ := strings.Cut(got.Out, "\nConfiguration:")
		if row, _, _ = strings.Cut(row, "\n"); strings.TrimSpace(row) != want {
			t.Errorf("%q, want %q", row, want)
		}
	}
}
