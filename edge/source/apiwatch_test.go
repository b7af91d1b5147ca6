package source

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/apitest"
	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/internal/podtest"
)

// A cluster is an API server and the source that reads one node's pods.
type cluster struct {
	*testing.T
	*apitest.Server
	*desired.Desired
	db    *store.Store
	path  string
	retry chan struct{}
	seen  *seen
	end   func()

	mu    sync.Mutex
	poked map[types.UID]int
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{T: t, Server: apitest.New(t), path: filepath.Join(t.TempDir(), "islet.db")}
	c.start()
	t.Cleanup(func() { c.end() })
	return c
}

func (c *cluster) start() {
	c.Helper()
	log := slog.New(slog.DiscardHandler)
	var err error
	if c.db, err = store.Open(context.Background(), c.path, log); err != nil {
		c.Fatal(err)
	}
	c.poked, c.retry, c.seen = map[types.UID]int{}, make(chan struct{}, 1), &seen{pods: map[types.UID]string{}}
	if c.Desired, err = desired.New(desired.Config{Store: c.db, Poke: c.poke, Log: log}); err != nil {
		c.Fatal(err)
	}
	client := c.Server.Client(c.T)
	a, err := NewAPI(APIConfig{Client: client, Node: "n", Sink: c.Desired, Observer: c.seen, Retry: kube.LinkSignal{C: c.retry}, Log: log})
	if err != nil {
		c.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := a.Run(ctx); err != nil {
			c.Error(err)
		}
	}()
	c.end = func() {
		cancel()
		<-ended
		client.CloseConnections()
		if err := c.db.Close(); err != nil {
			c.Error(err)
		}
	}
}

func (c *cluster) poke(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.poked[uid]++
}

// A seen is an Observer that records the newest version of each pod.
type seen struct{ pods map[types.UID]string }

func (s *seen) PodsListed(pods []v1.Pod) {
	clear(s.pods)
	for i := range pods {
		s.PodSeen(&pods[i])
	}
}
func (s *seen) PodSeen(p *v1.Pod) { s.pods[p.UID] = p.ResourceVersion }
func (s *seen) PodGone(p *v1.Pod) { delete(s.pods, p.UID) }

func bound(name string) *v1.Pod {
	p := podtest.New(name, podtest.UID(""), podtest.Node("n"), podtest.Image("a:1"))
	p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "someone"}}
	return p
}

func (c *cluster) show() string {
	var all []string
	for _, p := range c.List() {
		s := p.Pod.Name + "="
		if podspec.IsTooLarge(p.Pod) {
			s += "too large"
		} else {
			s += p.Pod.Spec.Containers[0].Image
		}
		if p.Deleting {
			s += fmt.Sprintf(" ends in %v", p.Grace)
		}
		all = append(all, s)
	}
	return strings.Join(all, ", ")
}

// settled waits until the bubble is idle, and compares the node's pods with want.
func (c *cluster) settled(what, want string) {
	c.Helper()
	synctest.Wait()
	if got := c.show(); got != want {
		c.Errorf("%s: have %q, want %q", what, got, want)
	}
}

func (c *cluster) fail(err error) {
	f := func(w http.ResponseWriter, r *http.Request) bool {
		if err != nil {
			c.Server.WriteError(w, r, err)
		}
		return err != nil
	}
	c.Fault.Store(&f)
}

func TestAPIPodsAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.Put(bound("a"))
		other := bound("other")
		other.Spec.NodeName = "m"
		c.Put(other)
		mirror := bound("static-n")
		mirror.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "x"}
		c.Put(mirror)
		c.settled("listed", "a=a:1")
		if !c.HasReported(desired.API) {
			t.Error("Spoken returns false")
		}
		c.Put(bound("b"))
		c.settled("added", "a=a:1, b=a:1")
		a := c.Pod("default", "a")
		pokes := c.poked[a.UID]
		a.Status.Phase, a.Status.Message = v1.PodRunning, "of no interest"
		c.Put(a)
		c.settled("a status", "a=a:1, b=a:1")
		if c.poked[a.UID] != pokes {
			t.Error("a status has changed the pod")
		}
		if p, _ := c.Get(a.UID); len(p.Pod.ManagedFields) > 0 || p.Pod.Annotations[keys.ConfigSource] != "api" ||
			p.Pod.ResourceVersion != "" {
			t.Errorf("stored %+v", p.Pod.ObjectMeta)
		}
		a.Spec.Containers[0].Image = "a:2"
		c.Put(a)
		c.settled("another image", "a=a:2, b=a:1")
		if p, _ := c.Get(a.UID); p.Deleting || p.Predecessor != "" {
			t.Error("the pod must stay the same")
		}
		c.Terminate(a, 7)
		c.settled("deleted", "a=a:2 ends in 7s, b=a:1")
		c.Terminate(a, 0)
		c.Put(bound("a"))
		c.settled("replaced", "a=a:2 ends in 1s, a=a:1, b=a:1")
		if err := c.Forget(t.Context(), a.UID); err != nil {
			t.Error(err)
		}
		c.Remove(bound("b"))
		c.settled("evicted", "a=a:1, b=a:1 ends in 30s")
		if len(c.seen.pods) != 2 { // a, mirror
			t.Error(c.seen.pods)
		}
		if n := c.Requests("LIST pods"); n != 1 {
			t.Errorf("%d lists", n)
		}
	})
}

// TestAPIPodThatEnded checks that the node keeps the status of an ended pod. The pod ended before the node read it.
func TestAPIPodThatEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		p := bound("done")
		p.Status = v1.PodStatus{Phase: v1.PodSucceeded, PodIP: "10.0.0.7",
			ContainerStatuses: []v1.ContainerStatus{{Name: "c", RestartCount: 3}}}
		c.Put(p)
		c.settled("listed", "done=a:1")
		known, _ := c.Get(c.Pod("default", "done").UID)
		if s := known.Pod.Status; s.Phase != v1.PodSucceeded || len(s.ContainerStatuses) != 1 ||
			s.ContainerStatuses[0].RestartCount != 3 || s.PodIP == "" {
			t.Errorf("%+v", s)
		}
	})
}

// TestAPIWatchGoesOn checks that each reconnection causes a watch request and no list request. Changes arrive within seconds.
func TestAPIWatchGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.Put(bound("a"))
		c.settled("listed", "a=a:1")
		for range 20 {
			c.Disconnect()
			c.CloseConnections()
			time.Sleep(time.Minute)
			a := c.Pod("default", "a")
			a.Labels = map[string]string{"at": time.Now().String()}
			c.Put(a)
			c.Reconnect()
			time.Sleep(16 * time.Second)
			if p, _ := c.Get(a.UID); p.Pod.Labels["at"] != a.Labels["at"] {
				t.Fatal("the source has not recovered")
			}
		}
		if l, w := c.Requests("LIST pods"), c.Requests("WATCH pods"); l != 1 || w != 21 {
			t.Errorf("%d lists, %d watches", l, w)
		}
		c.Disconnect()
		c.CloseConnections()
		time.Sleep(time.Hour)
		c.Put(bound("b"))
		c.Reconnect()
		c.retry <- struct{}{}
		c.settled("told that the link is back", "a=a:1, b=a:1")
	})
}

func TestAPIListsAnewWhenItMust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.Put(bound("a"))
		c.Put(bound("b"))
		c.settled("listed", "a=a:1, b=a:1")
		c.Disconnect()
		c.CloseConnections()
		c.Remove(bound("a"))
		c.Put(bound("c"))
		c.Compact()
		c.Reconnect()
		time.Sleep(30 * time.Second)
		c.settled("after 410", "a=a:1 ends in 30s, b=a:1, c=a:1")
		if n := c.Requests("LIST pods"); n != 2 {
			t.Errorf("%d lists", n)
		}
	})
}

// TestAPIConverges runs random histories of a cluster, its link and its node. No pod that the cluster wants may end. After the last
// fault, the node must want the same pods as the cluster.
func TestAPIConverges(t *testing.T) {
	lives := 25
	if testing.Short() {
		lives = 8
	}
	for seed := range uint64(lives) {
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := history{cluster: newCluster(t), r: rand.New(rand.NewPCG(seed, 7))}
				for range 80 {
					h.step()
					synctest.Wait()
					h.check()
				}
				h.settle()
			})
		})
		if !ok {
			return
		}
	}
}

type history struct {
	*cluster
	r *rand.Rand
}

func (h *history) pick() *v1.Pod {
	all := h.Pods()
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, func(a, b *v1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return all[h.r.IntN(len(all))]
}

func (h *history) step() {
	name := string(rune('a' + h.r.IntN(6)))
	p := h.pick()
	switch n := h.r.IntN(14); {
	case n < 3 && h.Pod("default", name) == nil:
		h.Put(bound(name))
	case n == 3:
		if h.Pod("default", name) != nil {
			h.Remove(bound(name))
		}
		h.Put(bound(name)) // the same name with another UID
	case n == 4 && p != nil && p.DeletionTimestamp == nil:
		h.Terminate(p, h.r.Int64N(30)+1)
	case n == 5 && p != nil:
		h.Remove(p)
	case n < 8 && p != nil:
		p.Spec.Containers[0].Image = fmt.Sprintf("a:%d", h.r.IntN(5))
		p.Status.Message = fmt.Sprint(h.r.IntN(3))
		h.Put(p)
	case n == 8:
		h.Disconnect()
		h.CloseConnections()
	case n == 9:
		h.Reconnect()
		h.fail(nil)
	case n == 10:
		h.Compact()
	case n == 11:
		h.fail([]error{apierrors.NewInternalError(fmt.Errorf("x")), apierrors.NewTooManyRequests("x", 1),
			apierrors.NewTimeoutError("x", 1)}[h.r.IntN(3)])
		h.CloseConnections()
	case n == 12:
		h.end()
		h.start()
	default:
		time.Sleep(time.Duration(h.r.IntN(20)) * time.Second) // in the bubble
		h.forget()
	}
}

// forget ends all deleting pods, as the pod workers do.
func (h *history) forget() {
	for _, p := range h.List() {
		if !p.Deleting || h.r.IntN(2) == 0 {
			continue
		}
		if at := h.Pod(p.Pod.Namespace, p.Pod.Name); at != nil && at.UID == p.Pod.UID && at.DeletionTimestamp != nil {
			h.Remove(at)
		}
		if err := h.Forget(h.Context(), p.Pod.UID); err != nil {
			h.Error(err)
		}
	}
}

// check asserts that no pod that the cluster wants has ended.
func (h *history) check() {
	h.Helper()
	for _, p := range h.Pods() {
		if d, ok := h.Get(p.UID); ok && d.Deleting && p.DeletionTimestamp == nil {
			h.Errorf("pod %s has ended although it is wanted", p.Name)
		}
	}
}

func (h *history) settle() {
	h.Helper()
	h.Reconnect()
	h.fail(nil)
	time.Sleep(3 * apiLastRetry) // after several answers with Retry-After, one wait takes up to apiLastRetry
	for range 20 {
		h.forget()
		synctest.Wait()
	}
	want, have := map[types.UID]string{}, map[types.UID]string{}
	versions := map[types.UID]string{}
	for _, p := range h.Pods() {
		want[p.UID] = p.Spec.Containers[0].Image
		versions[p.UID] = p.ResourceVersion
	}
	for _, p := range h.List() {
		have[p.Pod.UID] = p.Pod.Spec.Containers[0].Image
		if p.Deleting || p.Predecessor != "" {
			h.Errorf("pod %s never settles", p.Pod.Name)
		}
	}
	if !maps.Equal(want, have) {
		h.Errorf("the cluster wants %v, the node %v", want, have)
	}
	if !maps.Equal(versions, h.seen.pods) {
		h.Errorf("the cluster has %v, the observer received %v", versions, h.seen.pods)
	}
}
