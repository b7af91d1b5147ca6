package podlist_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/kubelet/server"
	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
)

// TestAllocatedPods checks that /allocatedPods returns the allocated resources of all unfinished pods, without statuses. If the feature
// gate is off, the path does not exist.
func TestAllocatedPods(t *testing.T) {
	n, _ := servertest.Start(t)
	web := n.Pod("web", time.Now(), "nginx")
	done := n.Pod("done", time.Now(), "job")
	done.Status.Phase = v1.PodSucceeded
	n.Put(done)
	on := servertest.OpenAPI(t, n.Variant(t, func(c *server.Config) {
		c.Kubelet.Allocated = func(p *v1.Pod) *v1.Pod {
			out := *p
			out.Labels = map[string]string{"allocated": "yes"}
			return &out
		}
	}))
	for _, c := range []struct {
		path  string
		code  int
		wants []string
		lacks []string
	}{
		{"/allocatedPods", 200, []string{`"kind":"PodList"`, `"name":"web"`, `"allocated":"yes"`}, []string{`"name":"done"`, `"phase"`}},
		{"/allocatedPods/default/web", 200, []string{`"kind":"Pod"`, `"name":"web"`, `"allocated":"yes"`}, []string{`"phase"`}},
		{"/allocatedPods/default/web/" + string(web.UID), 200, []string{`"name":"web"`}, nil},
		{"/allocatedPods/default/web/other", 404, nil, nil},
		{"/allocatedPods/default/done", 404, nil, nil},
		{"/allocatedPods/default/none", 404, nil, nil},
	} {
		code, body := servertest.Fetch(t, on.Client(), http.MethodGet, "https://"+on.Addr+c.path)
		if code != c.code {
			t.Errorf("%s: %d %s", c.path, code, body)
		}
		for _, want := range c.wants {
			if !strings.Contains(body, want) {
				t.Errorf("%s has no %s: %s", c.path, want, body)
			}
		}
		for _, other := range c.lacks {
			if strings.Contains(body, other) {
				t.Errorf("%s has %s: %s", c.path, other, body)
			}
		}
	}
	off := servertest.OpenAPI(t, n.Server)
	if code, _ := servertest.Fetch(t, off.Client(), http.MethodGet, "https://"+off.Addr+"/allocatedPods"); code != http.StatusNotFound {
		t.Errorf("without the gate: %d", code)
	}
}
