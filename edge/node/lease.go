package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/internal/retry"
)

const (
	renewals    = 4               // of a lease within its duration, as a kubelet does
	leaseJitter = 0.04            // so that a fleet does not renew in step
	leaseAnswer = 8 * time.Second // how long a renewal waits while nothing arrives: others wait for the next
	microTime   = "2006-01-02T15:04:05.000000Z07:00"
)

// keepLease renews the lease until ctx ends. A failure is followed by another try before
// the next renewal would be due, however long the trouble: others judge the node by it.
// While the link is down it waits for the link.
func (n *Node) keepLease(ctx context.Context) {
	every := n.LeaseFor / renewals
	again := retry.Backoff{First: firstRetry, Most: every / 2}
	l := &lease{Node: n}
	for {
		begin := time.Now()
		err := l.touch(kube.Busy(kube.Within(ctx, min(every, leaseAnswer)), every))
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, kube.ErrBusy) { // the answer waits behind what arrives; renewals do not
			continue
		}
		l.tell(err)
		if err != nil {
			n.History.Doubt()
			if _, ended := kube.Wait(ctx, &again, err, n.leaseRetry); ended != nil {
				return
			}
			continue
		}
		again.Reset()
		select {
		case <-ctx.Done():
			return
		case <-time.After(every + time.Duration(leaseJitter*rand.Float64()*float64(every)) - time.Since(begin)):
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

// touch renews the lease, or makes it; twice, if the answer shows that the claim of this machine
// is not there.
func (l *lease) touch(ctx context.Context) error {
	m, err := l.renew(ctx)
	if err == nil && l.Claim.Renewed(ctx, m) {
		if m, err = l.renew(ctx); err == nil {
			l.Claim.Renewed(ctx, m)
		}
	}
	return err
}

func (l *lease) renew(ctx context.Context) (*metav1.ObjectMeta, error) {
	if err := l.History.Settle(ctx); err != nil { // the renewal overwrites what it looks at
		return nil, err
	}
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
	if a := l.Claim.Annotations(false); a != nil {
		meta, _ := change["metadata"].(map[string]any)
		if meta == nil {
			meta = map[string]any{}
		}
		meta["annotations"] = a
		change["metadata"] = meta
	}
	data, err := json.Marshal(change)
	if err != nil {
		return nil, fmt.Errorf("encode the lease: %w", err)
	}
	m, err := kube.Patch[coordinationv1.Lease](ctx, l.Client, v1.NamespaceNodeLease, l.Name, types.MergePatchType, data, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		l.slim = false
		l.History.Missing(ctx)
		m, err = l.make(ctx, now)
	} else if err == nil {
		l.slim = owners != nil
	}
	if err != nil {
		return nil, fmt.Errorf("renew the lease: %w", err)
	}
	l.last = now
	l.History.Renewed(ctx, m.ResourceVersion, now)
	l.Touched()
	return m, nil
}

func (l *lease) make(ctx context.Context, now time.Time) (*metav1.ObjectMeta, error) {
	seconds, renewed := int32(l.LeaseFor/time.Second), metav1.NewMicroTime(now)
	made := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1.NamespaceNodeLease, Name: l.Name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &l.Name, LeaseDurationSeconds: &seconds, RenewTime: &renewed},
	}
	made.OwnerReferences = l.owners()
	for key, value := range l.Claim.Annotations(true) {
		if s, ok := value.(string); ok {
			metav1.SetMetaDataAnnotation(&made.ObjectMeta, key, s)
		}
	}
	return kube.Create(ctx, l.Client, made)
}

// owners lets the lease go with its Node; nil while that is not there.
func (l *lease) owners() []metav1.OwnerReference {
	node := l.Node.Last()
	if node == nil || node.UID == "" {
		return nil
	}
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
}
