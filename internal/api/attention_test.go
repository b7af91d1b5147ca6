package api

import (
	"strings"
	"testing"
	"time"
)

// TestFindAttention checks that each kind of condition needs attention, and that a healthy node needs none.
func TestFindAttention(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	code := int32(137)
	well := func() *Status {
		return &Status{Now: now, Runtime: Runtime{Ready: true}, Network: Network{Ready: true}, Cluster: &Cluster{Link: "Up"},
			Disks: []Disk{{Path: "/", Total: 32 << 30, Free: 20 << 30}}, Imports: []Import{{Ref: "x", Status: "unpacking"}},
			Sources: []Source{{Name: "file"}}, Ignored: []Ignored{{Name: "web"}}}
	}
	if list := FindAttention(well()); list != nil {
		t.Errorf("a healthy node: %v", list)
	}
	for want, change := range map[string]func(*Status){
		"the container runtime is not ready: no reason given": func(s *Status) { s.Runtime.Ready = false },
		"the pod network is not ready: no bridge":             func(s *Status) { s.Network = Network{Message: "no bridge"} },
		"the node is not ready: why":                          func(s *Status) { s.NotReady = []string{"why"} },
		"there has been no link to the API server for 5m (R): m; pods keep running": func(s *Status) {
			*s.Cluster = Cluster{Link: "Down", Since: now.Add(-5 * time.Minute), Reason: "R", Message: "m"}
		},
		"the client certificate expired 24h ago":                                                       func(s *Status) { s.Cluster.ClientCertificate = now.AddDate(0, 0, -1) },
		"the database was damaged and has been rebuilt: pods that were applied by hand may be missing": func(s *Status) { s.Store.Rebuilt = true },
		"pod a/b: container c: CrashLoopBackOff: back-off; its last exit code was 137; the last line of its log: \"no \\x1b[31mroom\" -> islet logs a/b": func(s *Status) {
			s.Troubles = []Trouble{{Namespace: "a", Name: "b", Container: "c", Reason: "CrashLoopBackOff", Message: "back-off", ExitCode: &code,
				LastLine: "no \x1b[31mroom", Command: "islet logs a/b"}}
		},
		"3 more like these -> islet pods -A": func(s *Status) { s.MoreTroubles = 3 },
		"/x.yaml: spec.nodeName: not this node": func(s *Status) {
			s.Sources[0].Problems = []Problem{{Origin: "/x.yaml", Field: "spec.nodeName", Message: "not this node"}}
		},
		"image import a.tar failed: damaged":                   func(s *Status) { s.Imports = []Import{{Ref: "a.tar", Error: "damaged"}} },
		"the disk of / is nearly full: 1.0MiB of 32.0GiB free": func(s *Status) { s.Disks[0].Free = 1 << 20 },
		"the clock is not set":                                 func(s *Status) { s.Problems = []string{"the clock is not set"} },
	} {
		s := well()
		change(s)
		if list := FindAttention(s); len(list) != 1 || list[0].String() != want {
			t.Errorf("got %v, want %s", list, want)
		}
	}
	many := well()
	many.Problems = make([]string, 3*maxAttention)
	list := FindAttention(many)
	if n := len(list); n != maxAttention+1 || !strings.HasPrefix(list[n-1].Text, "and 600 more") {
		t.Errorf("%d conditions, the last is %v", n, list[n-1])
	}
}
