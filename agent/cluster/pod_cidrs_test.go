package cluster

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/edge/brake"
	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/kube"
)

// A slowStore is a fake of the store. A write of a value waits until the channel is closed.
type slowStore struct{ write chan struct{} }

func (slowStore) Meta(context.Context, string) (string, bool, error) { return "", false, nil }

func (m slowStore) SetMetaOrRetry(context.Context, string, string) error {
	<-m.write
	return nil
}

// TestNodeChangesDoNotBlock checks that the loop that maintains the Node goes on while a network plugin or the store hangs. When the plugin
// answers, the last Node is applied.
func TestNodeChangesDoNotBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plugin, disk := make(chan struct{}), make(chan struct{})
		var seen, set []string
		c := &Cluster{nodes: make(chan *v1.Node, 1), known: make(chan struct{})}
		c.cfg.Changed = func(n *v1.Node) { seen = append(seen, n.Spec.PodCIDRs...) }
		c.cfg.Networks = func(_ context.Context, cidrs []netip.Prefix) error {
			<-plugin
			for _, p := range cidrs {
				set = append(set, p.String())
			}
			return nil
		}
		var err error
		if c.Brake, err = brake.New(t.Context(), brake.Config{Client: &kube.Client{}, Node: "n", Next: &desired.Desired{},
			Pods: func() []desired.Pod { return nil }, Epoch: func() int { return 0 }, Meta: slowStore{disk},
			Log: slog.New(slog.DiscardHandler)}); err != nil {
			t.Fatal(err)
		}
		change := func(cidr string) {
			n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "uid"}}
			n.Spec.PodCIDRs = []string{cidr}
			c.nodeChanged(n)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- c.applyNodes(ctx) }()
		seenBySource := -1 // the number of Nodes that were known when the source of pods began
		go func() {
			ended <- c.runOnNode(ctx, func(context.Context) error { seenBySource = len(seen); return nil })
		}()
		synctest.Wait()
		if seenBySource != -1 {
			t.Error("the source of pods runs before the Node is known")
		}
		for _, cidr := range []string{"10.1.0.0/24", "10.2.0.0/24", "10.3.0.0/24"} {
			change(cidr)
			synctest.Wait()
		}
		if seenBySource != 1 {
			t.Errorf("the source of pods began after %d versions of the Node", seenBySource)
		}
		if len(seen) != 3 || len(set) != 0 {
			t.Errorf("seen: %q, set: %q", seen, set)
		}
		close(plugin)
		synctest.Wait()
		change("10.4.0.0/24")
		change("10.5.0.0/24")
		close(disk)
		synctest.Wait()
		if len(seen) != 5 || len(set) < 2 || set[0] != "10.1.0.0/24" || set[len(set)-1] != "10.5.0.0/24" {
			t.Errorf("seen: %q, set: %q", seen, set)
		}
		stop()
		<-ended
		<-ended
	})
}
