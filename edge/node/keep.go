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
	lastRetry  = time.Minute      // of an outage of half an hour and more
	steady     = 10 * time.Second // what held as long has shown that the server is well
	// prompt is how many changes by others are undone at once between two looks at the facts; more
	// wait for the next look. Two who undo each other's changes would go on as fast as the
	// server answers.
	prompt = 3
)

// keepNode registers the Node, then keeps its status and follows its changes.
func (n *Node) keepNode(ctx context.Context) {
	again := retry.Backoff{First: firstRetry, Soon: lastRetry / 4, Most: lastRetry}
	failing := false
	r := &reporter{Node: n}
	for {
		began := time.Now()
		err := r.session(ctx, func() { failing = false })
		if ctx.Err() != nil {
			return
		}
		if err != nil && !failing {
			n.Log.Warn("the Node cannot be kept up to date, trying again", "node", n.Name, "error", err)
		}
		failing = failing || err != nil
		if time.Since(began) > steady {
			again.Reset()
		}
		if _, ended := kube.Wait(ctx, &again, err, n.nodeRetry); ended != nil {
			return
		}
	}
}

// errRewritten ends a session whose Node is not that of the server's history.
var errRewritten = errors.New("the cluster has another history than before")

// errDeleted ends a session in which the Node was deleted; the next one makes it again.
var errDeleted = errors.New("the Node was deleted")

// session keeps the Node until something fails. The first one reads or makes it; later
// ones go on where the last was. Up is called once the API server has answered.
func (r *reporter) session(ctx context.Context, up func()) error {
	if r.server == nil {
		node, err := r.register(ctx)
		if err != nil {
			return err
		}
		r.take(ctx, node)
	}
	w, err := kube.WatchMetadata[v1.Node](ctx, r.Client, "", metav1.ListOptions{FieldSelector: "metadata.name=" + r.Name, ResourceVersion: r.seen})
	if err != nil {
		return r.lost(fmt.Errorf("watch the Node: %w", err))
	}
	defer w.Stop()
	up()
	every := time.NewTicker(r.StatusEvery)
	defer every.Stop()
	for {
		if err := r.follow(ctx); err != nil {
			return r.lost(err)
		}
		r.Touched()
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
			r.undone = 0
		case <-r.poke:
		case <-r.rewritten:
			return r.lost(errRewritten)
		case e, open := <-w.ResultChan():
			if !open {
				return nil
			}
			if err := r.event(e); err != nil {
				return r.lost(err)
			}
		}
	}
}

// lost says when what is known of the Node no longer helps.
func (r *reporter) lost(err error) error {
	if errors.Is(err, errRewritten) || errors.Is(err, errDeleted) || apierrors.IsNotFound(err) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsConflict(err) {
		r.server, r.told, r.behind = nil, time.Time{}, false
	}
	return err
}

// follow reports, after it has read the Node if others have changed it.
func (r *reporter) follow(ctx context.Context) error {
	if !r.behind {
		return r.report(ctx)
	}
	if r.undone >= prompt {
		return nil
	}
	node, err := kube.Get[v1.Node](ctx, r.Client, "", r.Name)
	if err != nil {
		return fmt.Errorf("read the Node: %w", err)
	}
	r.take(ctx, node)
	if err := r.report(ctx); err != nil {
		return err
	}
	if r.server.ResourceVersion != node.ResourceVersion {
		r.undone++
	}
	return nil
}

// event takes one change of the Node. The watch shows metadata only: most changes are
// echoes of reports, and what they say is known; after others the Node is to be read.
func (r *reporter) event(e watch.Event) error {
	m, err := meta.Accessor(e.Object)
	switch {
	case e.Type == watch.Error || err != nil:
		return fmt.Errorf("watch the Node: %w", apierrors.FromObject(e.Object))
	case e.Type == watch.Deleted:
		r.Log.Warn("the Node was deleted; registering it again", "node", r.Name)
		return errDeleted
	case !newer(m.GetResourceVersion(), r.seen):
		return nil
	case m.GetResourceVersion() == r.server.ResourceVersion:
		r.seen = m.GetResourceVersion()
		return nil
	}
	r.behind = true
	return nil
}

// take goes on from a Node as it was read.
func (r *reporter) take(ctx context.Context, node *v1.Node) {
	r.server, r.seen, r.behind = node, node.ResourceVersion, false
	r.learn(ctx, node)
}

// newer compares versions. Those that are no numbers, which no API server has, are taken
// as they come.
func newer(a, b string) bool {
	now, err := strconv.ParseUint(a, 10, 64)
	before, err2 := strconv.ParseUint(b, 10, 64)
	return err != nil || err2 != nil || now > before
}

// learn keeps what the program needs of the Node, and tells it if it is news.
func (n *Node) learn(ctx context.Context, node *v1.Node) {
	now := &v1.Node{Spec: node.Spec}
	now.Name, now.UID, now.Labels, now.Annotations, now.CreationTimestamp = node.Name, node.UID, node.Labels, node.Annotations, node.CreationTimestamp
	now.Status.Capacity = foreign(node.Status.Capacity)
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
		err = n.Meta.SetMeta(ctx, metaNode, base64.StdEncoding.EncodeToString(data))
	}
	if err != nil {
		n.Log.Error("the Node cannot be stored: after a restart without network an older one counts", "error", err)
	}
	n.Changed(now)
}
