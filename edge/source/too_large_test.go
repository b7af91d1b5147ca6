package source

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
)

// tooLarge returns a pod that the API server accepts and that uses too much memory once it is decoded.
func tooLarge(name string) *v1.Pod {
	p := bound(name)
	p.Spec.Tolerations = make([]v1.Toleration, 200_000)
	return p
}

// TestAPITooLargePod checks that a pod that is too large for the node does not stop the source: in a watch, in a list after an expired
// version, after a restart, and with a server that cannot list and watch in one request. The node knows that the pod exists, so it can
// reject the pod, and follows the pod's end.
func TestAPITooLargePod(t *testing.T) {
	for _, separate := range []bool{false, true} {
		t.Run(fmt.Sprintf("separate=%t", separate), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				c.NoWatchList.Store(separate)
				c.Put(bound("a"))
				c.settled("listed", "a=a:1")
				c.Put(tooLarge("large"))
				c.Put(bound("b"))
				c.settled("watched", "a=a:1, b=a:1, large=too large")
				requests := c.Total()
				time.Sleep(time.Hour)
				if n := c.Total() - requests; n > 0 {
					t.Errorf("%d requests while nothing changes", n)
				}
				c.end()
				c.start()
				c.Put(bound("c"))
				c.settled("listed after a restart", "a=a:1, b=a:1, c=a:1, large=too large")
				c.Disconnect()
				c.CloseConnections()
				c.Remove(bound("a"))
				c.Put(tooLarge("other"))
				c.Compact()
				c.Reconnect()
				time.Sleep(2 * time.Minute)
				c.settled("listed after 410", "a=a:1 ends in 30s, b=a:1, c=a:1, large=too large, other=too large")
				if len(c.Problems()) > 0 {
					t.Error(c.Problems())
				}
				large := c.Pod("default", "large")
				if c.seen.pods[large.UID] != large.ResourceVersion {
					t.Errorf("the observer has version %q of the pod", c.seen.pods[large.UID])
				}
				c.Terminate(large, 7)
				c.Remove(c.Pod("default", "other"))
				c.settled("deleted", "a=a:1 ends in 30s, b=a:1, c=a:1, large=too large ends in 7s, other=too large ends in 30s")
			})
		})
	}
}

// TestAPIPodGrows checks that a known pod that becomes too large keeps its former version and is reported as a problem. Its deletion takes
// effect, and so do changes after which it is small again.
func TestAPIPodGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.Put(bound("a"))
		c.settled("listed", "a=a:1")
		grown := c.Pod("default", "a")
		grown.Spec.Tolerations = tooLarge("a").Spec.Tolerations
		grown.Spec.Containers[0].Image = "a:2"
		uid := grown.UID
		c.Put(grown)
		c.settled("grown", "a=a:1")
		hasProblem := func() bool {
			return len(c.Problems()) == 1 && strings.Contains(c.Problems()[0].Message, "default/a")
		}
		if !hasProblem() {
			t.Errorf("got %v", c.Problems())
		}
		c.end()
		c.start()
		c.settled("listed after a restart", "a=a:1")
		if p, ok := c.Get(uid); !ok || p.Deleting || p.Lives > 0 || !hasProblem() {
			t.Errorf("got %+v, %v", p, c.Problems())
		}
		grown = c.Pod("default", "a")
		grown.Spec.Tolerations = nil
		c.Put(grown)
		c.settled("small again", "a=a:2")
		if len(c.Problems()) > 0 {
			t.Error(c.Problems())
		}
		grown.Spec.Tolerations = tooLarge("a").Spec.Tolerations
		c.Put(grown)
		c.settled("grown again", "a=a:2")
		grown.Status.Phase = v1.PodFailed
		c.Put(grown)
		synctest.Wait()
		if p, _ := c.Get(uid); p.Pod.Status.Phase != v1.PodFailed || len(p.Pod.Spec.Containers) != 1 {
			t.Errorf("the pod has failed at the server, the node has %.300v", p.Pod)
		}
		c.Terminate(grown, 7)
		c.settled("deleted", "a=a:2 ends in 7s")
	})
}

// TestAPITooManyContainers checks that a pod with too many containers is too large, whether it is new or gets ephemeral containers later.
func TestAPITooManyContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		for _, n := range []int{1000, 1001} {
			p := bound(fmt.Sprint("p", n))
			for len(p.Spec.Containers) < n {
				p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: fmt.Sprint(len(p.Spec.Containers))})
			}
			c.Put(p)
		}
		c.Put(bound("grows"))
		c.settled("new", "grows=a:1, p1000=a:1, p1001=too large")
		p := c.Pod("default", "grows")
		p.Spec.EphemeralContainers = make([]v1.EphemeralContainer, 1000)
		c.Put(p)
		c.settled("grown", "grows=a:1, p1000=a:1, p1001=too large")
		if got, _ := c.Get(p.UID); len(got.Pod.Spec.EphemeralContainers) > 0 || len(c.Problems()) != 1 {
			t.Errorf("%d ephemeral containers, problems %v", len(got.Pod.Spec.EphemeralContainers), c.Problems())
		}
	})
}

// TestAPITooManyLargePods checks that pods that are too large only together do not stop the source, and that the pods of other users and
// the running pods stay as they are.
func TestAPITooManyLargePods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		for i := range 4 {
			p := bound(fmt.Sprintf("known%d", i))
			p.Spec.Containers[0].Args = []string{strings.Repeat("x", 1_400_000)}
			c.Put(p)
		}
		c.settled("listed", "known0=a:1, known1=a:1, known2=a:1, known3=a:1")
		c.end()
		for i := range 30 {
			p := bound(fmt.Sprintf("new%02d", i))
			p.Spec.Containers[0].Args = []string{strings.Repeat("x", 1_300_000)}
			c.Put(p)
		}
		c.Put(bound("usual"))
		var lists int
		count := func(_ http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Get("watch") == "" && r.URL.Query().Get("continue") == "" {
				lists++
			}
			return false
		}
		c.Fault.Store(&count)
		c.start()
		time.Sleep(time.Hour)
		got := c.show()
		if !strings.HasPrefix(got, "known0=a:1, known1=a:1, known2=a:1, known3=a:1, new00=") || !strings.HasSuffix(got, ", usual=a:1") ||
			len(c.List()) != 35 || !c.HasReported("api") {
			t.Errorf("have %s", got)
		}
		if lists > 4 {
			t.Errorf("%d lists in an hour", lists)
		}
	})
}
