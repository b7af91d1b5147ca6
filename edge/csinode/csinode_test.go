package csinode

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/islet-edge/islet/edge/apitest"
	"github.com/islet-edge/islet/edge/kube"
)

// A scene is an API server and a node that is running.
type scene struct {
	*testing.T
	*apitest.Server
	*Node
	end   func()
	down  atomic.Bool // the link is down
	retry chan struct{}
}

func in(t *testing.T, test func(s *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{T: t, Server: apitest.New(t), retry: make(chan struct{}, 1)}
		s.Put(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "first", Labels: map[string]string{"zone.dev/z": "mine"}}})
		s.start()
		synctest.Wait()
		test(s)
		s.end()
	})
}

func (s *scene) start() {
	s.Helper()
	to := &rest.Config{Host: "http://127.0.0.1:1"}
	client, err := kube.New(kube.Config{Rest: func() (*rest.Config, error) { return to, nil }, Dial: s.Dial,
		BeforeRequest: func(context.Context) error {
			if s.down.Load() {
				return fmt.Errorf("%w: the cable is cut", kube.ErrNoLink)
			}
			return nil
		}})
	if err != nil {
		s.Fatal(err)
	}
	n, err := New(Config{Client: client, Name: "n", Node: func() *v1.Node { return s.Server.Node("n") },
		Retry: kube.LinkSignal{C: s.retry}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		s.Fatal(err)
	}
	s.Node = n
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- n.Run(ctx) }()
	s.end = func() {
		stop()
		if err := <-ended; err != nil {
			s.Error(err)
		}
		client.CloseConnections()
	}
}

// wants checks the drivers in the CSINode.
func (s *scene) wants(want string) {
	s.Helper()
	time.Sleep(time.Second)
	synctest.Wait()
	got := ""
	if o := s.CSINode("n"); o != nil {
		slices.SortFunc(o.Spec.Drivers, func(a, b storagev1.CSINodeDriver) int { return cmp.Compare(a.Name, b.Name) })
		for _, d := range o.Spec.Drivers {
			got += d.Name + "=" + d.NodeID + " " + strings.Join(d.TopologyKeys, ",")
			if d.Allocatable != nil {
				got += " limited"
			}
			got += ";"
		}
	}
	if got != want {
		s.Errorf("the CSINode has %q, not %q", got, want)
	}
}

// TestDrivers checks the CSINode after drivers were installed, changed and uninstalled.
func TestDrivers(t *testing.T) {
	in(t, func(s *scene) {
		if n := s.Total(); n != 0 {
			t.Errorf("%d requests without a driver", n)
		}
		s.Install("a", "id-a", 5, map[string]string{"host.dev/h": "n", "zone.dev/z": "other"})
		s.wants("a=id-a host.dev/h,zone.dev/z limited;")
		o := s.CSINode("n")
		if r := o.OwnerReferences; len(r) != 1 || r[0].UID != "first" || r[0].Kind != "Node" ||
			!strings.Contains(o.Annotations["storage.alpha.kubernetes.io/migrated-plugins"], "kubernetes.io/aws-ebs") {
			t.Errorf("made %+v", o.ObjectMeta)
		}
		node := s.Server.Node("n")
		if node.Annotations[nodeIDs] != `{"a":"id-a"}` || node.Labels["host.dev/h"] != "n" || node.Labels["zone.dev/z"] != "mine" {
			t.Errorf("the Node has %v and %v", node.Annotations, node.Labels)
		}
		s.Install("b", "id-b", 0, nil)
		s.wants("a=id-a host.dev/h,zone.dev/z limited;b=id-b ;")
		before := s.Total()
		s.Install("b", "id-b", 0, nil) // as after a restart of the agent or the driver
		s.wants("a=id-a host.dev/h,zone.dev/z limited;b=id-b ;")
		if n := s.Total() - before; n != 1 {
			t.Errorf("%d requests for known drivers", n)
		}
		s.Install("b", "id-c", 0, nil)
		s.wants("a=id-a host.dev/h,zone.dev/z limited;b=id-c ;")
		changes := s.Requests("PATCH csinodes")
		s.Install("a", "id-a", 7, map[string]string{"host.dev/h": "n", "zone.dev/z": "other"})
		s.wants("a=id-a host.dev/h,zone.dev/z limited;b=id-c ;")
		all := s.CSINode("n").Spec.Drivers
		a := all[slices.IndexFunc(all, func(d storagev1.CSINodeDriver) bool { return d.Name == "a" })]
		if n := s.Requests("PATCH csinodes") - changes; n != 1 || *a.Allocatable.Count != 7 {
			t.Errorf("%d changes for a new limit, which is %d: the driver must never be missing", n, *a.Allocatable.Count)
		}
		s.Uninstall("a")
		s.wants("b=id-c ;")
		if text := s.Server.Node("n").Annotations[nodeIDs]; text != `{"b":"id-c"}` {
			t.Errorf("the Node has %s", text)
		}
		s.Uninstall("b")
		s.wants("")
		if _, found := s.Server.Node("n").Annotations[nodeIDs]; found || s.CSINode("n") == nil {
			t.Error("the annotation still exists, or the CSINode does not")
		}
	})
}

// TestOffline checks that drivers can register without a connection. A restart of the agent must remove no driver. A recreated Node must
// get a new CSINode.
func TestOffline(t *testing.T) {
	in(t, func(s *scene) {
		s.Disconnect()
		s.Install("a", "id-a", 0, nil)
		s.Install("b", "id-b", 0, nil)
		s.Uninstall("b")
		time.Sleep(time.Hour)
		s.Reconnect()
		s.Poke()
		time.Sleep(time.Minute)
		s.wants("a=id-a ;")
		s.end()
		s.start()
		s.wants("a=id-a ;")
		s.Install("c", "id-c", 0, nil)
		s.wants("a=id-a ;c=id-c ;")
		s.Install("a", "id-a", 0, nil)
		s.wants("a=id-a ;c=id-c ;")
		s.Remove(s.Server.Node("n"))
		s.Put(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "second"}})
		s.Poke()
		s.wants("a=id-a ;c=id-c ;")
		if r := s.CSINode("n").OwnerReferences; r[0].UID != "second" {
			t.Errorf("it is owned by %+v", r)
		}
		s.Put(&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "else",
			OwnerReferences: []metav1.OwnerReference{{Kind: "Node", UID: "first"}}}})
		s.Install("c", "id-d", 0, nil)
		s.wants("a=id-a ;c=id-d ;")
	})
}

// TestNoLink checks that a driver that registers or changes while the link is down is written as soon as the link is up. The driver does
// not register again, and the Node does not change.
func TestNoLink(t *testing.T) {
	in(t, func(s *scene) {
		for _, id := range []string{"first", "second"} {
			s.down.Store(true)
			before := s.Total()
			s.Install("a", id, 0, nil)
			time.Sleep(time.Hour)
			if n := s.Total() - before; n != 0 {
				t.Errorf("%d requests without a link", n)
			}
			s.down.Store(false)
			s.retry <- struct{}{}
			s.wants("a=" + id + " ;")
		}
	})
}

// TestAnnotationBomb checks that the node replaces an annotation whose decoded form is too large. The annotation belongs to the Node
// object.
func TestAnnotationBomb(t *testing.T) {
	in(t, func(s *scene) {
		var text strings.Builder
		for i := range 100_000 {
			fmt.Fprintf(&text, `"%x":"",`, i)
		}
		node := s.Server.Node("n").DeepCopy()
		node.Annotations = map[string]string{nodeIDs: "{" + text.String() + `"a":""}`}
		s.Put(node)
		s.Install("a", "id-a", 5, nil)
		synctest.Wait()
		if got := s.Server.Node("n").Annotations[nodeIDs]; got != `{"a":"id-a"}` {
			t.Errorf("the annotation is %.100s", got)
		}
	})
}
