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

// longestLook is between two looks of a machine that backs off.
const longestLook = 30 * time.Minute

// A watch is what a machine without the name knows of the Lease.
type watch struct {
	looks   int
	renewed time.Time // what the Lease said at the last look; only compared for equality
	alive   bool      // somebody renews it
	wait    time.Duration
	next    time.Time // of the next look; zero: at once
}

// Admit says whether this machine may use the API server, which answers. An empty why: it may.
// Else wait is the time until Admit looks at the Lease again. An error means that the server did
// not say. It is called by one goroutine.
func (t *Twin) Admit(ctx context.Context, c *kube.Client) (why string, wait time.Duration, err error) {
	if why, wait = t.due(); why == "" || wait > 0 {
		return why, wait, nil
	}
	ctx = kube.Ungated(ctx)
	lease, err := kube.Get[coordinationv1.Lease](ctx, c, v1.NamespaceNodeLease, t.cfg.Node)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) { // then the Lease tells nobody anything
		lease, err = &coordinationv1.Lease{}, nil
	}
	if err != nil {
		return "", 0, fmt.Errorf("look which machine has the name of this node: %w", err)
	}
	if t.look(lease) {
		_ = t.notify(ctx, c) // what it cannot leave there it leaves at the next look
	}
	why, wait = t.due()
	return why, wait, nil
}

// due returns why this machine does not have the name, and the time until the next look. The
// network cards of a machine may appear late: they are read again.
func (t *Twin) due() (why string, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == barred && t.rec.Backed == "" {
		if t.now = marksOf(t.cfg.Marks()); !t.rec.Marks.another(t.now) {
			t.stand()
		}
	}
	if t.state == standing {
		return "", 0
	}
	return t.why(), max(0, time.Until(t.watch.next))
}

// stand gives the name to this machine.
func (t *Twin) stand() {
	t.state, t.watch, t.claim.hardware = standing, watch{}, t.now.hardware()
	t.signal()
}

// why says why this machine does not have the name.
func (t *Twin) why() string {
	switch {
	case t.rec.Backed != "":
		return t.rec.Backed
	case t.state == newcomer && t.watch.alive:
		return "another machine has the name of this node, and renews its Lease"
	case t.state == newcomer:
		return "another machine has had the name of this node; whether it still renews its Lease is being watched"
	}
	why := "the disk comes from another machine, which has the name of this node"
	if t.watch.alive {
		why += " and renews its Lease"
	}
	return why
}

// look judges the Lease, and reports whether to leave a notice there.
func (t *Twin) look(lease *coordinationv1.Lease) (notify bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var renewed time.Time
	if r := lease.Spec.RenewTime; r != nil {
		renewed = r.Time
	}
	w := &t.watch
	w.alive = w.looks > 0 && !renewed.Equal(w.renewed)
	if found, ok := parseClaim(lease.Annotations[keys.LeaseClaim]); t.state == newcomer {
		own := !ok || found.boot == t.claim.boot || found.hardware == unknown || t.now.hardware() == unknown || found.hardware == t.now.hardware()
		if own || w.looks > 0 && !w.alive {
			t.claim.term, t.claim.since, t.write = found.term, versionOf(lease.ResourceVersion), true
			t.stand()
			return false
		}
	}
	w.looks++
	w.renewed = renewed
	w.wait = min(max(2*w.wait, t.cfg.Renew), longestLook)
	w.next = time.Now().Add(w.wait)
	return (t.state == barred || w.alive) && lease.Name != "" && lease.Annotations[keys.LeaseTwin] != t.notice()
}

// notice is what the other machine finds in the Lease.
func (t *Twin) notice() string { return t.claim.hardware + "." + t.claim.boot }

func parseNotice(s string) (o other, ok bool) {
	o.hardware, o.boot, ok = strings.Cut(s, ".")
	return o, ok && hash(o.boot) && (o.hardware == unknown || hash(o.hardware))
}

func (t *Twin) notify(ctx context.Context, c *kube.Client) error {
	t.mu.Lock()
	notice := t.notice()
	t.mu.Unlock()
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{keys.LeaseTwin: notice}}})
	if err != nil {
		return err
	}
	_, err = kube.Patch[coordinationv1.Lease](ctx, c, v1.NamespaceNodeLease, t.cfg.Node, types.MergePatchType, data, metav1.PatchOptions{})
	return err
}

// TakeOver gives the name to this machine, as a person says. It reports whether this machine had
// it before. While another machine renews the Lease, or while that is not known yet although the
// API server answers, it is refused, unless force is set: both would run pods with the same
// volumes.
func (t *Twin) TakeOver(ctx context.Context, force bool) (had bool, err error) {
	t.mu.Lock()
	switch {
	case t.state == standing:
		t.mu.Unlock()
		return true, nil
	case !force && (t.watch.alive || t.watch.looks == 1):
		wait := max(time.Second, time.Until(t.watch.next).Round(time.Second))
		t.mu.Unlock()
		return false, fmt.Errorf("another machine renews the Lease of %s, or did so a moment ago: turn it off, or give it another name, and try again in %s", t.cfg.Node, wait)
	}
	t.now = marksOf(t.cfg.Marks())
	t.rec = record{Node: t.cfg.Node, Marks: t.now, Term: t.claim.term + 1, Taking: true}
	t.claim.term, t.acknowledged, t.write, t.writes, t.earlier = t.rec.Term, false, false, 0, 0
	t.stand()
	rec := t.rec
	t.mu.Unlock()
	t.keep(ctx, rec)
	return false, nil
}

// versionOf is 0 for what is no number.
func versionOf(s string) uint64 {
	v, _ := strconv.ParseUint(s, 10, 64)
	return v
}
