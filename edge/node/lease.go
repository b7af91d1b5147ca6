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
	renewals    = 4               // renewals per lease duration, as in a kubelet
	leaseJitter = 0.04            // spreads the renewals of many nodes
	leaseAnswer = 8 * time.Second // maximum time without data for a renewal
	maxAhead    = 24 * time.Hour  // maximum time by which the last renewal before a start may be ahead of the clock
	microTime   = "2006-01-02T15:04:05.000000Z07:00"
)

// keepLease renews the lease until ctx ends. The control plane judges the node's health by the lease, so a failed renewal is retried before
// the next renewal is due. Even in a long outage, the back-off is at most half of the interval between renewals. If the link is down,
// keepLease sends no request and waits for the link.
func (n *Node) keepLease(ctx context.Context) {
	every := n.LeaseFor / renewals
	again := retry.Backoff{FirstWindow: firstRetry, MaxWindow: every / 2}
	l := &lease{Node: n}
	if n.LastRenewal.Before(n.Now().Add(maxAhead)) { // otherwise the clock was wrong then, and its time must not stay in the Lease
		l.last = n.LastRenewal
	}
	for {
		begin := time.Now()
		err := l.renewLease(kube.WithBusyTimeout(kube.WithSilenceTimeout(ctx, min(every, leaseAnswer)), every))
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, kube.ErrBusy) { // the renewal waited for other data of this node
			continue
		}
		l.logOutage(err)
		if err != nil {
			n.History.SuspectServer()
			if _, ended := kube.WaitForRetry(ctx, &again, err, kube.LinkSignal{C: n.leaseRetry}); ended != nil {
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

// A lease renews the Lease of the node. No other program writes this Lease, so it is patched without a read.
type lease struct {
	*Node
	upToDate bool      // all fields except renewTime are up to date
	last     time.Time // time of the last acknowledged renewal; initially from an earlier start
	failing  bool      // the last renewal failed; used to log an outage only once
}

// logOutage logs the start and the end of an outage.
func (l *lease) logOutage(err error) {
	switch failing := err != nil; {
	case failing == l.failing:
	case failing:
		l.Log.Warn("the lease of this node cannot be renewed and is retried", "error", err)
	default:
		l.Log.Info("the lease of this node is renewed again")
	}
	l.failing = err != nil
}

// renewLease renews the lease, or creates it. If the claim of this machine is missing in the answer, renewLease renews the lease a second
// time.
func (l *lease) renewLease(ctx context.Context) error {
	m, err := l.renew(ctx)
	if err == nil && l.Duplicates.EvaluateLease(ctx, m) {
		if m, err = l.renew(ctx); err == nil {
			l.Duplicates.EvaluateLease(ctx, m)
		}
	}
	return err
}

func (l *lease) renew(ctx context.Context) (*metav1.ObjectMeta, error) {
	if err := l.History.VerifyServer(ctx); err != nil { // reads the old Lease; the renewal would overwrite the evidence
		return nil, err
	}
	now := l.Now()
	if !now.After(l.last) { // the clock was set back or stands still, but renewTime must change
		now = l.last.Add(time.Second)
	}
	owners := l.ownerReferences()
	change := map[string]any{"spec": map[string]any{"renewTime": now.UTC().Format(microTime)}}
	if !l.upToDate {
		// Another program may have created the Lease, so set all fields: the holder, the configured duration and the owner. Clear the
		// managedFields, which are most of the bytes.
		change["spec"] = map[string]any{
			"renewTime": now.UTC().Format(microTime), "holderIdentity": l.Name, "leaseDurationSeconds": int32(l.LeaseFor / time.Second),
		}
		meta := map[string]any{"managedFields": noManagedFields}
		if owners != nil {
			meta["ownerReferences"] = owners
		}
		change["metadata"] = meta
	}
	if a := l.Duplicates.Annotations(false); a != nil {
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
	o := metav1.PatchOptions{}
	m, err := kube.Patch[coordinationv1.Lease](ctx, l.Client, v1.NamespaceNodeLease, l.Name, types.MergePatchType, data, o)
	if apierrors.IsNotFound(err) {
		l.upToDate = false
		l.History.RecordMissingLease()
		m, err = l.createLease(ctx, now)
	} else if err == nil {
		l.upToDate = owners != nil
	}
	if err != nil {
		return nil, fmt.Errorf("renew the lease: %w", err)
	}
	l.last = now
	l.History.RecordRenewal(m.ResourceVersion, now)
	l.OnPeriodicTask()
	return m, nil
}

func (l *lease) createLease(ctx context.Context, now time.Time) (*metav1.ObjectMeta, error) {
	seconds, renewed := int32(l.LeaseFor/time.Second), metav1.NewMicroTime(now)
	made := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1.NamespaceNodeLease, Name: l.Name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &l.Name, LeaseDurationSeconds: &seconds, RenewTime: &renewed},
	}
	made.OwnerReferences = l.ownerReferences()
	for key, value := range l.Duplicates.Annotations(true) {
		if s, ok := value.(string); ok {
			metav1.SetMetaDataAnnotation(&made.ObjectMeta, key, s)
		}
	}
	return kube.Create(ctx, l.Client, made)
}

// ownerReferences returns the owner references of the lease, whose owner is the Node. It returns nil while the Node does not exist.
func (l *lease) ownerReferences() []metav1.OwnerReference {
	node := l.Node.LastKnown()
	if node == nil || node.UID == "" {
		return nil
	}
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
}
