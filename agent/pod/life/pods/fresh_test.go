package pods

import (
	"context"
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/edge/desired"
)

// A lateNode is a Node in the API server that has a label which the agent does not know yet.
type lateNode struct {
	w     *world
	err   error
	reads int
}

func (n *lateNode) Refresh(context.Context) error {
	n.reads++
	if n.err == nil {
		n.w.labels = map[string]string{"site": "roof"}
	}
	return n.err
}

// TestFreshNode checks that a pod whose nodeSelector does not match the known labels is rejected only after the Node was read again, once
// for each decision. Pods of other sources are decided again when the Node changes, so nothing is read for them.
func TestFreshNode(t *testing.T) {
	w := newWorld(t)
	n := &lateNode{w: w, err: errors.New("no link")}
	w.Connect(nil, n)
	selects := func(name, site string) *v1.Pod {
		p := aPod(name, "1", 0)
		p.Spec.NodeSelector = map[string]string{"site": site}
		return p
	}
	w.setPods(t, desired.API, selects("early", "roof"), selects("a", "roof"), selects("b", "cellar"), aPod("c", "1", 0))
	w.setPods(t, desired.File, selects("file", "attic"))
	w.admit(t, "early", "NodeAffinity")
	n.err, n.reads = nil, 0
	w.admit(t, "file", "NodeAffinity")
	w.admit(t, "c", "admitted")
	if n.reads != 0 {
		t.Errorf("%d reads", n.reads)
	}
	w.admit(t, "a", "admitted")
	w.admit(t, "b", "NodeAffinity")
	if n.reads != 2 {
		t.Errorf("%d reads for two pods", n.reads)
	}
}
