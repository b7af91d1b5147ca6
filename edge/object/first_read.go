package object

import (
	"errors"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/kube"
)

// A firstRead is the state of a claim that was already known when a pod came to this node. The claim may have been deleted and created
// again with another volume since it was last read, so the pod must not use it before it is read again. Without a link, the pod uses the
// known claim. After a start of the agent, this applies to the pods that have not mounted a volume yet. The Cache's mu protects it.
type firstRead struct {
	offline bool // the last read has failed because there is no link
	refused bool // the pod has tried to use the claim
}

var errOutdated = errors.New("it has not been read since the pod came to this node")

// markUnread records that a stored pod must not use its claims before they are read again.
func (c *Cache) markUnread(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.pods[uid] {
		if it := c.items[k]; k.Kind == claimKind && it.isKnown() {
			it.unread[uid] = &firstRead{}
		}
	}
}

// mustBeRead reports whether a pod must not use the item before it is read again. The caller must hold mu.
func (it *item) mustBeRead(uid types.UID) bool {
	r, unread := it.unread[uid]
	return unread && !r.offline
}

// refuse records that a pod has tried to use an item that must be read again. The caller must hold mu.
func (it *item) refuse(uid types.UID) error {
	it.unread[uid].refused = true
	return errOutdated
}

// listUnread returns the pods for which the item must be read. A read that began before this call does not count for these pods, because
// its answer may be older than the pods.
func (c *Cache) listUnread(it *item) (waiting []types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for uid, r := range it.unread {
		r.offline = false // the link may be up again
		waiting = append(waiting, uid)
	}
	return waiting
}

// recordRead records the result of a read that has begun after listUnread has returned these pods. It notifies the pods that wait for it.
func (c *Cache) recordRead(it *item, waiting []types.UID, err error) {
	var notify []types.UID
	c.mu.Lock()
	for _, uid := range waiting {
		r := it.unread[uid]
		if r == nil {
			continue
		}
		r.offline = errors.Is(err, kube.ErrNoLink)
		if r.refused && (err == nil || r.offline) {
			r.refused = false
			notify = append(notify, uid)
		}
		if err == nil {
			delete(it.unread, uid)
		}
	}
	c.mu.Unlock()
	for _, uid := range notify {
		c.cfg.Changed(uid)
	}
}

// requestUnread requests another read of the items of a pod whose last read has succeeded, but had begun before the pod came to this node.
func (c *Cache) requestUnread(uid types.UID) (fresh []<-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.pods[uid] {
		if it := c.items[k]; it.err == nil && it.mustBeRead(uid) {
			fresh = append(fresh, it.requestRead())
		}
	}
	return fresh
}
