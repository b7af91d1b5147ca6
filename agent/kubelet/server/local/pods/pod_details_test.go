package pods_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/kubelet/server"
	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
	"github.com/islet-edge/islet/internal/api"
)

// TestOrigins checks that the list of all pods' origins is created without a call of Details. The cost of such a call grows with the number
// of problems and events on the node. A pod with an unknown origin is not in the list.
func TestOrigins(t *testing.T) {
	n, _ := servertest.Start(t, func(c *server.Config) {
		c.Details = func(uid types.UID) api.Details {
			t.Errorf("the details of pod %s are not needed", uid)
			return api.Details{}
		}
		c.Origin = func(uid types.UID) string { return map[types.UID]string{"uid-web": "islet apply"}[uid] }
	})
	n.Pod("web", time.Now(), "nginx")
	n.Pod("new", time.Now(), "nginx")
	if code, body := n.Do(t, "GET", api.PathOrigins, ""); code != 200 || body != "{\"uid-web\":\"islet apply\"}\n" {
		t.Errorf("%d %q", code, body)
	}
}
