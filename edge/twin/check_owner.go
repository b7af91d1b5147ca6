package twin

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/internal/keys"
)

// maxLookInterval is the maximum interval between two reads of the Lease by a machine that has backed off.
const maxLookInterval = 30 * time.Minute

// A watch records the reads of the Lease by this machine, while this machine does not have the name. It is not a watch of the API.
type watch struct {
	looks   int
	renewed time.Time // renewTime at the last read; only compared for equality
	alive   bool      // another machine renews the Lease
	wait    time.Duration
	next    time.Time // time of the next read of the Lease; zero means immediately
	// asked is set if TakeOver has restarted the reads. wasQuiet is then the result of isQuiet before the restart.
	asked, wasQuiet bool
}

// isQuiet reports whether the last two reads have found that nobody renews the Lease.
func (w *watch) isQuiet() bool { return w.looks > 1 && !w.alive }

// CheckOwner decides whether this machine may use the API server. The first result is empty if the machine may use it. Otherwise it is the
// reason. The second result is the time until CheckOwner reads the Lease again. An error means that the Lease could not be read. Only one
// goroutine may call CheckOwner, and only while the API server answers.
func (t *Twin) CheckOwner(ctx context.Context, c *kube.Client) (why string, wait time.Duration, err error) {
	if why, wait = t.checkName(); why == "" || wait > 0 {
		return why, wait, nil
	}
	ctx = kube.WithoutHooks(ctx)
	lease, err := kube.Get[coordinationv1.Lease](ctx, c, v1.NamespaceNodeLease, t.cfg.Node)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) && !t.isRestored() { // without a Lease, no other machine can be found
		lease, err = &coordinationv1.Lease{}, nil
	}
	if err != nil {
		return "", 0, fmt.Errorf("read which machine has the name of this node: %w", err)
	}
	if t.evaluateLease(lease) {
		_ = t.notify(ctx, c) // if this fails, the next call of CheckOwner writes the notice
	}
	why, wait = t.checkName()
	return why, wait, nil
}

func (t *Twin) isRestored() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rec.Restored
}

// checkName returns the reason why this machine does not have the name, and the time until the next read of the Lease. It reads the
// network cards again, because they may appear late.
func (t *Twin) checkName() (why string, wait time.Duration) {
	needsCard := func() bool { return t.state == barredState && t.rec.Backed == "" }
	t.mu.Lock()
	defer t.mu.Unlock()
	if needsCard() {
		now := t.readMarks()
		if needsCard() {
			if t.now = now; !t.rec.Marks.differsFrom(now) {
				t.claimName()
			}
		}
	}
	if t.state == owningState {
		return "", 0
	}
	return t.whyNotOwner(), max(0, time.Until(t.watch.next))
}

// claimName records that this machine has the name.
func (t *Twin) claimName() {
	t.state, t.watch, t.claim.hardware = owningState, watch{}, t.now.hardwareHash()
	t.announceRead()
	t.signalChange()
}

// whyNotOwner returns the reason why this machine does not have the name. A decision that is still pending is also a reason.
func (t *Twin) whyNotOwner() string {
	switch {
	case t.rec.Backed != "":
		return t.rec.Backed
	case t.rec.Restored && t.watch.alive:
		return "this node was restored from a backup, and the machine before it has renewed its Lease since: if that machine is off, run " +
			"islet takeover"
	case t.rec.Restored:
		return "this node was restored from a backup; islet checks whether the machine before it still renews its Lease"
	case t.state == newcomer && t.watch.alive:
		return "another machine has the name of this node, and renews its Lease"
	case t.state == newcomer:
		return "another machine has had the name of this node; islet checks whether it still renews its Lease"
	}
	why := "the disk comes from another machine, which has the name of this node"
	if t.watch.alive {
		why += " and renews its Lease"
	}
	return why
}

// evaluateLease evaluates the Lease. It reports whether to write a notice into the Lease.
func (t *Twin) evaluateLease(lease *coordinationv1.Lease) (notify bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var renewed time.Time
	if r := lease.Spec.RenewTime; r != nil {
		renewed = r.Time
	}
	w := &t.watch
	w.alive = w.looks > 0 && !renewed.Equal(w.renewed)
	if t.state == newcomer {
		found, ok := parseNameClaim(lease.Annotations[keys.LeaseClaim])
		hardware := t.now.hardwareHash()
		unknown := !ok || found.hardware == unknownHardware || hardware == unknownHardware
		if t.rec.Restored { // the machine before certainly exists
			unknown = lease.Name == ""
		}
		own := unknown || found.boot == t.claim.boot || found.hardware == hardware && hardware != unknownHardware
		if own || w.looks > 0 && !w.alive {
			t.claim.term, t.claim.since, t.write = found.term, versionOf(lease.ResourceVersion), true
			if t.rec.Restored {
				t.claim.term = max(found.term, t.rec.Term) + 1
				t.rec = record{Node: t.cfg.Node, Term: t.claim.term, Taking: true}
			}
			t.claimName()
			return false
		}
	}
	defer t.announceRead()
	w.looks++
	w.renewed = renewed
	w.wait = min(max(2*w.wait, t.cfg.Renew), maxLookInterval)
	w.next = time.Now().Add(w.wait)
	return (t.state == barredState || w.alive) && lease.Name != "" && lease.Annotations[keys.LeaseTwin] != t.noticeValue()
}

// noticeValue returns the value of the annotation that informs the other machine about this machine.
func (t *Twin) noticeValue() string { return t.claim.hardware + "." + t.claim.boot }

func parseNotice(s string) (o otherMachine, ok bool) {
	o.hardware, o.boot, ok = strings.Cut(s, ".")
	return o, ok && isHash(o.boot) && (o.hardware == unknownHardware || isHash(o.hardware))
}

func (t *Twin) notify(ctx context.Context, c *kube.Client) error {
	t.mu.Lock()
	notice := t.noticeValue()
	t.mu.Unlock()
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{keys.LeaseTwin: notice}}})
	if err != nil {
		return err
	}
	_, err = kube.Patch[coordinationv1.Lease](ctx, c, v1.NamespaceNodeLease, t.cfg.Node, types.MergePatchType, data, metav1.PatchOptions{})
	return err
}

// versionOf parses a resource version. It returns 0 if s is not a number.
func versionOf(s string) uint64 {
	v, _ := strconv.ParseUint(s, 10, 64)
	return v
}
