package cni

import (
	"testing"
	"time"

	"github.com/islet-edge/islet/net/netns"
	"github.com/islet-edge/islet/net/netns/netnstest"
	"github.com/islet-edge/islet/net/notice"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestOwnNotices checks that the start and the end of a pod cause neither a check of the bridge nor a list of all interfaces, which takes
// longer the more pods the node has. The kernel reports the sysctls of each new interface, and the agent may read the notices about a veth
// when the veth has already changed. TestRepair checks that real changes are noticed.
func TestOwnNotices(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, cidrs("10.42.0.0/24"))
	check(t, n.Reconcile(t.Context(), nil))
	w.pod(t, n, "first")
	l, err := notice.Open(w.node)
	check(t, err)
	notices, ended := make(chan notice.Notice, 1000), make(chan error, 1)
	go func() { ended <- l.Run(t.Context(), func(m notice.Notice) { notices <- m }) }()
	handle := func(last func(notice.Notice) bool) (sysctls int) {
		for late := time.After(patience); ; {
			var m notice.Notice
			select {
			case m = <-notices:
			case err := <-ended:
				t.Fatalf("the listener has ended: %v", err)
			case <-late:
				t.Fatal("the kernel has not sent the last notice")
			}
			if m.Kind == notice.Sysctl {
				sysctls++
			}
			if parts := n.affectedParts(m); parts&^(partSysctls|partSuspects) != 0 {
				t.Errorf("%+v causes a check of the parts %b", m, parts)
			}
			if last(m) {
				return sysctls
			}
		}
	}

	cfg := &api.PodSandboxConfig{Metadata: &api.PodSandboxMetadata{Name: "pod", Namespace: "ns", Uid: "uid"}}
	_, path := netnstest.New(t)
	_, err = n.Setup(t.Context(), "pod", path, cfg)
	check(t, err)
	// The kernel reports this change after those of the pod.
	const lo = "ipv4/conf/lo/forwarding"
	check(t, w.node.Set(netns.Sysctl{Name: lo, Value: "0"}, netns.Sysctl{Name: lo, Value: "1"}))
	if handle(func(m notice.Notice) bool { return m.Kind == notice.Sysctl && m.Index == 1 }) < 2 {
		t.Error("the kernel sent no notice about the sysctls of the pod's interface")
	}
	if suspects := n.tracker.takeSuspects(false); len(suspects) != 1 {
		t.Errorf("suspects: %v", suspects) // the veth was created without a master
	}
	check(t, n.Teardown(t.Context(), "pod", path, cfg))
	handle(func(m notice.Notice) bool { return m.Kind == notice.Link && m.Gone && m.Name == vethName("pod") })
	if suspects := n.tracker.takeSuspects(false); len(suspects) > 0 {
		t.Errorf("suspects after the end of the pod: %v", suspects)
	}
	l.Close()
	<-ended

	index := int(n.tracker.index.Load())
	for _, about := range []int{-1, -2, 0, index} { // all interfaces, new interfaces, an unknown one, the bridge
		if n.affectedParts(notice.Notice{Kind: notice.Sysctl, Index: about})&partBridge == 0 {
			t.Errorf("a change of the sysctls of interface %d does not cause a check of the bridge", about)
		}
	}
}
