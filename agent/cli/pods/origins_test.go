package pods_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/api"
)

// TestOrigins checks that islet pods -o wide and islet describe name the file, URL or command that a pod comes from, without
// the control characters of a file's name.
func TestOrigins(t *testing.T) {
	n, _ := startNode(t)
	n.Details = func(uid types.UID) (d api.Details) {
		d.Origin = map[types.UID]string{"uid-dns-pi": "/etc/kubernetes/manifests/\x1b]0;dns.yaml", "uid-web-pi": "islet apply"}[uid]
		return d
	}
	got := run(t, n, "", "pods", "-A", "-o", "wide")
	want := `local    <none>
local    islet apply
file     /etc/kubernetes/manifests/?]0;dns.yaml
`
	lines := strings.Split(got.Out, "\n")
	column := strings.LastIndex(lines[0], "SOURCE")
	for i, l := range lines {
		lines[i] = l[min(len(l), column):]
	}
	if have := strings.Join(lines[1:], "\n"); got.Code != 0 || have != want {
		t.Errorf("pods -o wide: %+v", got)
	}
	for pod, want := range map[string]string{"dns": "Origin:           /etc/kubernetes/manifests/?]0;dns.yaml\n", "web": "Origin:           islet apply\n", "crash": ""} {
		got := run(t, n, "", "describe", pod)
		if got.Code != 0 || !strings.Contains(got.Out, want) || strings.Contains(got.Out, "Origin:") != (want != "") {
			t.Errorf("describe %s: %+v", pod, got)
		}
	}
}
