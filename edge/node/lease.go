package node

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/kube"
)

const (
	renewals    = 4               // of a lease within its duration, as a kubelet does
	leaseJitter = 0.04            // so that a fleet does not renew in step
	leaseAnswer = 8 * time.Second // how long a renewal may take: others wait for the next
	microTime   = "2006-01-02T15:04:05.000000Z07:00"
)

// keepLease renews the lease until ctx ends.
func (n *Node) keepLease(ctx context.Context) {
	every := n.LeaseFor / renewals
	delay := firstRetry
	l := &lease{Node: n}
	for {
		begin := time.Now()
		pause := every + time.Duration(leaseJitter*rand.Float64()*float64(every))
		err := l.touch(ctx, min(every, leaseAnswer))
		if ctx.Err() != nil {
			return
		}
		l.tell(err)
		if err != nil {
			pause = max(delay/2+rand.N(delay), retryAfter(err))
			delay = min(2*delay, every/2)
		} else {
			delay = firstRetry
			pause -= time.Since(begin)
		}
		select {
		case <-ctx.Done():
			return
		case <-n.renew:
			delay = firstRetry
		case <-time.After(pause):
		}
	}
}

// A lease is the Lease of the node. It is nobody else's, so it is renewed by a patch
// without a look at what is there.
type lease struct {
	*Node
	slim    bool      // all but the time is as it should be
	last    time.Time // the last renewal that was told
	failing bool      // so that an outage is one line of the log, and its end another
}

// tell logs what is new.
func (l *lease) tell(err error) {
	switch failing := err != nil; {
	case failing == l.failing:
	case failing:
		l.Log.Warn("the lease of this node cannot be renewed, trying again", "error", err)
	default:
		l.Log.Info("the lease of this node is renewed again")
	}
	l.failing = err != nil
}

// touch renews the lease, or makes it.
func (l *lease) touch(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	now := l.Now()
	if !now.After(l.last) { // a clock that stands still or was set back: others only see that it moves
		now = l.last.Add(time.Second)
	}
	owners := l.owners()
	change := map[string]any{"spec": map[string]any{"renewTime": now.UTC().Format(microTime)}}
	if !l.slim {
		// Whoever may have made the Lease, and when: it is held by this node, for as long as
		// the configuration says, goes with the Node, and carries no managedFields, which are
		// most of its bytes.
		change["spec"] = map[string]any{"renewTime": now.UTC().Format(microTime), "holderIdentity": l.Name, "leaseDurationSeconds": int32(l.LeaseFor / time.Second)}
		meta := map[string]any{"managedFields": noManagedFields}
		if owners != nil {
			meta["ownerReferences"] = owners
		}
		change["metadata"] = meta
	}
	data, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("encode the lease: %w", err)
	}
	_, err = kube.Patch[coordinationv1.Lease](ctx, l.Client, v1.NamespaceNodeLease, l.Name, types.MergePatchType, data, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		l.slim = false
		err = l.make(ctx, now)
	} else if err == nil {
		l.slim = owners != nil
	}
	if err != nil {
		return fmt.Errorf("renew the lease: %w", err)
	}
	l.last = now
	return nil
}

func (l *lease) make(ctx context.Context, now time.Time) error {
	seconds, renewed := int32(l.LeaseFor/time.Second), metav1.NewMicroTime(now)
	made := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1.NamespaceNodeLease, Name: l.Name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &l.Name, LeaseDurationSeconds: &seconds, RenewTime: &renewed},
	}
	made.OwnerReferences = l.owners()
	_, err := kube.Create(ctx, l.Client, made)
	return err
}

// owners lets the lease go with its Node; nil while that is not there.
func (l *lease) owners() []metav1.OwnerReference {
	node := l.Node.Last()
	if node == nil || node.UID == "" {
		return nil
	}
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
}
