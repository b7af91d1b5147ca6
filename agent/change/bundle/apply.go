package bundle

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/islet-edge/islet/agent/change/bundle/feed"
	"github.com/islet-edge/islet/agent/change/bundle/medium"
	"github.com/islet-edge/islet/internal/api"
	format "github.com/islet-edge/islet/internal/bundle"
)

// A request names a bundle that the node should try.
type request struct {
	from  string
	open  func() (format.Layout, error) // instead of from; may be nil
	rule  rule                          // replaces the rule for a person's request; may be nil
	older bool                          // its number may be lower than the highest one
	// repair is the bundle in use if a part of it is missing or damaged on this node. The same bundle repairs it, without a trial.
	repair digest.Digest
	isOld  bool // only the contents manifest is missing, because an earlier version of islet has written the folder

	interrupt func() // ends a request of the node itself, because a person has another one

	// The following fields are for a followed source, whose bundle the node itself requests.
	followed bool
	own      Record     // the record without its copy in the database
	last     feed.Seen  // the bundle that must not be tried again
	seen     *feed.Seen // receives the bundle that the source has
}

// byNode reports whether no person has requested the bundle.
func (q *request) byNode() bool { return q.followed || q.rule != nil }

// allows returns an error if the node must not try a bundle now.
func (q *request) allows(r *Record, b Bundle) error {
	if err := q.checkFollowed(b, *r); err != nil {
		return err
	}
	return q.check(r, b)
}

func (q *request) check(r *Record, b Bundle) (err error) {
	if q.rule != nil {
		err = q.rule(r, b)
	} else {
		err = r.Check(b, q.older)
	}
	if errors.Is(err, ErrInUse) && q.repair == b.Digest {
		return nil
	}
	return err
}

// checkFollowed returns an error if the node must not try a bundle by itself.
func (q *request) checkFollowed(id Bundle, r Record) error {
	if !q.followed {
		return nil
	}
	q.seen.Name, q.seen.Number, q.seen.Digest = id.Name, id.Number, id.Digest
	switch {
	case q.repair == id.Digest:
		return nil
	case q.last.Digest == id.Digest:
		return feed.ErrSame
	case id.Number < r.Highest[id.Name], id.Number == q.own.Highest[id.Name], r.HasFailed(id.Digest): // or a person has reverted it
		return feed.ErrDone
	}
	return nil
}

// Apply stages the bundle in a file or directory or on a server, and starts its trial. It changes nothing if the bundle is in use already.
// If older is true, its number may be lower than the highest one. Apply ends the fetch of a followed bundle, which continues later. If the
// field Update of the result is set, that version of islet is tried first, and the bundle must be applied again afterwards.
func (n *Node) Apply(ctx context.Context, from string, older bool, tell Progress) (api.Bundle, error) {
	b, err := n.apply(ctx, request{from: from, older: older}, tell)
	updating := updatingError{}
	if errors.As(err, &updating) {
		b, err = describeBundle(updating.bundle), nil
		b.Update = &updating.update
	}
	return b, err
}

// ApplyFollowed implements feed.Applier.
func (n *Node) ApplyFollowed(ctx context.Context, from string, last feed.Seen) (seen feed.Seen, err error) {
	ctx, interrupt := context.WithCancelCause(ctx)
	defer interrupt(nil)
	r, err := n.complete(ctx)
	onTrial := n.c.CheckTrial()
	switch {
	case err != nil:
		return seen, err
	case r.Trial != nil || r.Abandoned != "":
		return seen, feed.ErrBusy
	case onTrial != nil: // islet bundle status shows the reason
		return seen, busyError{onTrial}
	case r.Highest[last.Name] < last.Number: // the record was removed, so the bundle counts as new
		last = feed.Seen{}
	}
	q := request{from: from, followed: true, own: n.now(), last: last, seen: &seen, interrupt: func() { interrupt(feed.ErrBusy) }}
	_, err = n.apply(ctx, q, func(string, int64, int64) {})
	if err != nil && errors.Is(context.Cause(ctx), feed.ErrBusy) {
		err = feed.ErrBusy
	}
	return seen, err
}

// A busyError is medium.ErrBusy and feed.ErrBusy with another text.
type busyError struct{ error }

func (busyError) Is(err error) bool { return err == medium.ErrBusy || err == feed.ErrBusy }

// A gate is a mutex. Whoever waits for it can give up.
type gate chan struct{}

func (g gate) tryLock() bool {
	select {
	case g <- struct{}{}:
		return true
	default:
		return false
	}
}

func (g gate) lock(ctx context.Context) error {
	select {
	case g <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g gate) unlock() { <-g }

// lock locks n.applying. It returns an error if another bundle is being staged for a person, or if another request waits for the lock.
func (n *Node) lock(ctx context.Context, q request) error {
	if !n.applying.tryLock() {
		if q.followed {
			return feed.ErrBusy
		}
		n.mu.Lock()
		interrupt := n.interrupt
		n.interrupt = nil
		n.mu.Unlock()
		if interrupt == nil {
			return busyError{errors.New(
				"another bundle is being verified or unpacked, or waits for pods: try again later (islet bundle status)")}
		}
		interrupt()
		if err := n.applying.lock(ctx); err != nil {
			return err
		}
	}
	n.setInterrupt(q.interrupt)
	return nil
}

func (n *Node) unlock() {
	n.setInterrupt(nil)
	n.applying.unlock()
}

func (n *Node) setInterrupt(interrupt func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.interrupt = interrupt
}

func (n *Node) apply(ctx context.Context, q request, tell Progress) (api.Bundle, error) {
	if len(n.c.Policy.Keys) == 0 {
		return api.Bundle{}, errors.New(
			"bundle.keys: the node accepts no bundle: write the public keys of the signers into the EdgeConfiguration")
	}
	if err := n.check(); err != nil {
		return api.Bundle{}, err
	}
	if err := n.lock(ctx, q); err != nil {
		return api.Bundle{}, err
	}
	defer n.unlock()
	if err := n.c.CheckTrial(); err != nil {
		return api.Bundle{}, busyError{err}
	}
	if q.byNode() {
		if err := n.c.CheckKeys(); err != nil {
			return api.Bundle{}, err
		}
	}
	if err := n.checkReturning(); err != nil {
		return api.Bundle{}, err
	}
	r, err := n.complete(ctx)
	if err == nil {
		err = n.sweep()
	}
	if err != nil {
		return api.Bundle{}, err
	}
	if r.Trial == nil && r.Current != nil && !(q.followed && n.intact == r.Current.Digest) { // a source is checked often
		n.chooseRepair(ctx, &q, *r.Current)
	}
	show := tell
	tell = func(status string, done, total int64) {
		n.mu.Lock()
		n.staging.progress = status
		n.mu.Unlock()
		show(status, done, total)
	}
	s, err := n.stageFrom(ctx, r, q, tell)
	if err == nil && s.Digest == q.repair {
		err = n.endRepair(s, q)
	}
	if err == nil {
		err = n.awaitPods(ctx, s, q, r, tell)
	}
	if err == nil {
		err = n.startTrial(ctx, s, r, q.check)
	}
	n.endStaging()
	n.endFetch(ctx, q, err)
	switch {
	case errors.Is(err, ErrInUse) && r.Trial == nil: // a stick is often applied twice
		out := describeBundle(*r.Current)
		out.InUse = true
		return out, nil
	case err != nil:
		return api.Bundle{}, err
	}
	n.c.Log.Info("a bundle is on trial", "bundle", s.String(), "digest", s.Digest)
	n.wake()
	return describeBundle(s.Bundle), nil
}

// chooseRepair sets the bundle in use as the one that a request repairs, unless the node has all parts of it.
func (n *Node) chooseRepair(ctx context.Context, q *request, b Bundle) {
	docs, err := n.read(b)
	hasAll := err == nil && n.hasImages(ctx, docs)
	if hasAll && (docs.manifest != nil || q.followed) { // a server would have to send the whole bundle for its manifest
		n.intact = b.Digest
		return
	}
	n.intact, q.repair, q.isOld = "", b.Digest, hasAll
	q.last = feed.Seen{} // a server must not answer that it has the same bundle
}

// endRepair returns ErrInUse if the bundle in use was repaired, and another error if another one is in use by now.
func (n *Node) endRepair(s *staged, q request) error {
	n.changing.Lock()
	defer n.changing.Unlock()
	if r := n.now(); r.Trial != nil || r.Current == nil || r.Current.Digest != s.Digest {
		return errChanged
	}
	err := n.change(func(r *Record) error { // on another platform, such as after islet restore, the images are other ones
		r.Images = maps.Clone(r.Images)
		r.Images[s.Digest] = s.images
		return nil
	})
	if err != nil {
		return err
	}
	if !q.isOld {
		n.c.Log.Warn("a bundle in use was damaged or incomplete, and was repaired", "bundle", s.String(), "digest", s.Digest)
	}
	n.wake()
	return ErrInUse
}

// chooseMust returns the pods that the trial of a bundle would require now, and those that it would require if they were Ready.
func (n *Node) chooseMust(r *Record, s *staged) (must, unready []string) {
	return chooseMust(n.c.List(), s.set.pods(), r.Starting(n.c.Now(), n.c.Deadline))
}

// maxPersonWaits is how long the trial of a bundle that a person applies waits for pods.
const maxPersonWaits = time.Minute

// awaitPods waits until all pods are Ready that may still be starting again, after a start of the agent or a revert. A trial does not
// require a pod that is not Ready when it begins, so a bundle with a bad instance of such a pod would be kept. The pods have as much time
// as in a trial. After that they count as ill. A person waits for at most maxPersonWaits. If the record differs from the record before,
// such as after a revert, there will be no trial.
func (n *Node) awaitPods(ctx context.Context, s *staged, q request, before Record, tell Progress) error {
	tick := time.NewTicker(judgeEvery)
	defer tick.Stop()
	for began := time.Now(); ; {
		n.mu.Lock()
		r, restarted := n.record, n.restarted
		n.mu.Unlock()
		_, unready := n.chooseMust(&r, s)
		isOver := time.Since(restarted) >= n.c.Deadline || !q.byNode() && time.Since(began) >= maxPersonWaits
		if len(unready) == 0 || isOver || r.differs(&before) {
			return nil
		}
		if may, err := n.countWait(); !may {
			return err
		}
		tell("waiting for pods that are still starting: "+shorten(unready), 0, 0)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// countWait counts in the record that the trial of a bundle waits for pods, once for each start of the agent. It returns false if a trial
// has waited at each of the last starts, and none has begun. Otherwise a bundle that repairs the node would never be tried on a node that
// always restarts before the deadline.
func (n *Node) countWait() (may bool, err error) {
	if n.waited {
		return true, nil
	}
	n.changing.Lock()
	defer n.changing.Unlock()
	if n.now().Waits >= maxStarts {
		return false, nil
	}
	err = n.change(func(r *Record) error {
		r.Waits++
		return nil
	})
	n.waited = err == nil
	return n.waited, err
}

// stageFrom opens a bundle and stages it.
func (n *Node) stageFrom(ctx context.Context, r Record, q request, tell Progress) (*staged, error) {
	l, err := n.openLayout(ctx, r, q, tell)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return n.stage(ctx, l, r, q, tell)
}

func (n *Node) openLayout(ctx context.Context, r Record, q request, tell Progress) (format.Layout, error) {
	if q.open != nil {
		return q.open()
	}
	if !feed.Is(q.from) {
		return format.OpenLayout(q.from)
	}
	tell("connecting", 0, 0)
	l, v, err := n.servers.Open(ctx, feed.Request{
		From: q.from, Last: q.last.Validators, Tell: tell,
		Accept: func(b *format.Bundle) error {
			if err := n.accept(b, Bundle{b.Contents.Name, b.Contents.Number, b.ID}, r, q); err != nil {
				return err
			}
			return n.checkOffer(b, q)
		},
	})
	if q.seen != nil {
		q.seen.Validators = v
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}
