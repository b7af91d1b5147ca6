package node

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/internal/retry"
)

const (
	firstRetry = 500 * time.Millisecond
	lastRetry  = time.Minute      // reached after an outage of half an hour
	steadyTime = 10 * time.Second // minimum duration of a session that resets the back-off
	// maxReverts limits the changes by other programs that this node reverts immediately: it is their maximum number in each period of
	// StatusEvery. Further changes are reverted at the end of the period. Without a limit, two programs that revert each other's changes
	// would send requests as fast as the server answers.
	maxReverts = 3
)

// keepNode registers the Node, maintains its status and watches it until ctx ends.
func (n *Node) keepNode(ctx context.Context) {
	again := retry.Backoff{FirstWindow: firstRetry, SecondWindow: lastRetry / 4, MaxWindow: lastRetry}
	failing := false
	r := &reporter{Node: n}
	for {
		began := time.Now()
		err := r.maintainNode(ctx, func() { failing = false })
		if ctx.Err() != nil {
			return
		}
		if err != nil && !failing {
			n.Log.Warn("the Node cannot be kept up to date and is retried", "node", n.Name, "error", err)
		}
		failing = failing || err != nil
		if time.Since(began) > steadyTime {
			again.Reset()
		}
		if _, ended := kube.WaitForRetry(ctx, &again, err, kube.LinkSignal{C: n.nodeRetry}); ended != nil {
			return
		}
	}
}

// errRewritten ends a session after a change of the server's history.
var errRewritten = errors.New("the cluster has another history than before")

// errDeleted ends a session after the Node was deleted. The next session creates the Node again.
var errDeleted = errors.New("the Node was deleted")

// maintainNode maintains the Node until an error occurs. A Node that is not known yet is read first, or created. The caller's function is
// called when the API server has answered.
func (r *reporter) maintainNode(ctx context.Context, up func()) error {
	if r.server == nil {
		node, err := r.register(ctx)
		if err != nil {
			return err
		}
		r.replaceNode(ctx, node)
	}
	o := metav1.ListOptions{FieldSelector: "metadata.name=" + r.Name, ResourceVersion: r.seenVersion}
	w, err := kube.WatchMetadata[v1.Node](ctx, r.Client, "", o)
	if err != nil {
		return r.dropIfOutdated(fmt.Errorf("watch the Node: %w", err))
	}
	defer w.Stop()
	up()
	every := time.NewTicker(r.StatusEvery)
	defer every.Stop()
	for {
		if err := r.reportChanges(ctx); err != nil {
			return r.dropIfOutdated(err)
		}
		r.answerReaders()
		r.OnPeriodicTask()
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
			r.reverted = 0
			// If another machine with this name has written the same values, a report changes nothing, and the server answers with the
			// version of the other one. So this version says nothing about the other values.
			r.isOutdated = r.isOutdated || len(r.Duplicates.Conditions()) > 0
		case <-r.reportSignal:
		case reader := <-r.readRequests:
			r.addReaders(reader)
		case <-r.rewritten:
			return r.dropIfOutdated(errRewritten)
		case e, open := <-w.ResultChan():
			if !open {
				return nil
			}
			if err := r.handleEvent(e); err != nil {
				return r.dropIfOutdated(err)
			}
		}
	}
}

// addReaders makes reportChanges read the Node, for the caller of Refresh and for all others that wait already.
func (r *reporter) addReaders(reader chan<- struct{}) {
	r.isOutdated = true
	for {
		r.readers = append(r.readers, reader)
		select {
		case reader = <-r.readRequests:
		default:
			return
		}
	}
}

// answerReaders is called after reportChanges.
func (r *reporter) answerReaders() {
	for _, reader := range r.readers {
		reader <- struct{}{} // has space for one
	}
	r.readers = nil
}

// dropIfOutdated drops the known Node if the error shows that the known Node is outdated. It returns the error.
func (r *reporter) dropIfOutdated(err error) error {
	outdated := apierrors.IsNotFound(err) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsConflict(err)
	if outdated || errors.Is(err, errRewritten) || errors.Is(err, errDeleted) {
		r.server, r.reportedAt, r.isOutdated = nil, time.Time{}, false
	}
	return err
}

// reportChanges reports the status. It reads the Node first if other programs have changed it.
func (r *reporter) reportChanges(ctx context.Context) error {
	if !r.isOutdated {
		return r.reportStatus(ctx)
	}
	if r.reverted >= maxReverts && len(r.readers) == 0 {
		return nil
	}
	node, err := kube.Get[v1.Node](ctx, r.Client, "", r.Name)
	if err != nil {
		return fmt.Errorf("read the Node: %w", err)
	}
	r.replaceNode(ctx, node)
	if err := r.reportStatus(ctx); err != nil {
		return err
	}
	if r.server.ResourceVersion != node.ResourceVersion {
		r.reverted++
	}
	return nil
}

// handleEvent handles one change of the Node. Most changes are this node's own reports, whose content is known. After any other change,
// the Node must be read, because the watch returns only metadata.
func (r *reporter) handleEvent(e watch.Event) error {
	m, err := meta.Accessor(e.Object)
	switch {
	case e.Type == watch.Error || err != nil:
		return fmt.Errorf("watch the Node: %w", apierrors.FromObject(e.Object))
	case e.Type == watch.Deleted:
		r.Log.Warn("the Node was deleted; registering it again", "node", r.Name)
		return errDeleted
	case !isNewer(m.GetResourceVersion(), r.seenVersion):
		return nil
	case m.GetResourceVersion() == r.server.ResourceVersion:
		r.seenVersion = m.GetResourceVersion()
		return nil
	}
	r.isOutdated = true
	return nil
}

// replaceNode replaces the known Node.
func (r *reporter) replaceNode(ctx context.Context, node *v1.Node) {
	r.server, r.seenVersion, r.isOutdated = node, node.ResourceVersion, false
	r.storeNode(ctx, node)
}

// isNewer reports whether version a is newer than version b. API servers use numbers as versions. If a version is not a number, isNewer
// returns true.
func isNewer(a, b string) bool {
	now, err := strconv.ParseUint(a, 10, 64)
	before, err2 := strconv.ParseUint(b, 10, 64)
	return err != nil || err2 != nil || now > before
}

// storeNode stores the parts of the Node that the agent needs. It calls Changed if they have changed.
func (n *Node) storeNode(ctx context.Context, node *v1.Node) {
	now := &v1.Node{Spec: node.Spec}
	now.Name, now.UID, now.CreationTimestamp = node.Name, node.UID, node.CreationTimestamp
	now.Labels, now.Annotations = node.Labels, node.Annotations
	now.Status.Capacity = extendedResources(node.Status.Capacity)
	n.mu.Lock()
	before := n.last
	n.last = now
	n.mu.Unlock()
	if before != nil && before.UID == now.UID && equality.Semantic.DeepEqual(before.Labels, now.Labels) &&
		equality.Semantic.DeepEqual(before.Annotations, now.Annotations) && equality.Semantic.DeepEqual(before.Spec, now.Spec) &&
		equality.Semantic.DeepEqual(before.Status.Capacity, now.Status.Capacity) {
		return
	}
	data, err := now.Marshal()
	if err == nil {
		err = n.Meta.SetMetaOrRetry(ctx, metaNode, base64.StdEncoding.EncodeToString(data))
	}
	if err != nil {
		n.Log.Error("the Node cannot be stored yet: after a restart without a network an older version is used", "error", err)
	}
	n.Changed(now)
}
