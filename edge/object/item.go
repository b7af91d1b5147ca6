package object

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/retry"
)

const (
	pollEvery = time.Minute      // Cache and Get
	seldom    = 10 * time.Minute // of what cannot be watched, while nobody waits for it
	nowAndOn  = 80 * time.Second // Config.Every
	waiting   = 2 * time.Second  // of a claim that somebody waits for, growing to
	waitingUp = 30 * time.Second
	settled   = time.Minute     // a watch that lived so long did not fail
	retryMin  = time.Second     // the window after a failure, growing to
	retryMax  = time.Minute     // that of an outage of half an hour and more
	askedGap  = 5 * time.Second // between attempts that Retry asks for: a link may flap
	tooEarly  = 5               // refusals that may come of the server not knowing the pod yet
)

// An item is one object, or the services of a namespace. Its goroutine alone changes
// what is below users, under the Cache's mu.
//
//	new --listed--> known --watched--> known ...     an answer, maybe "there is none"
//	   \--failed--> known to be out of reach         err
type item struct {
	store.ObjectKey
	kind     *kind
	asked    chan struct{} // capacity 1: try now
	answered chan struct{} // closed when there is an answer, or none to be had
	stop     context.CancelFunc
	dropped  bool
	users    map[types.UID]bool // the pods; true: what is gone was theirs before

	content content // nil: never known
	gone    bool    // deleted; content is for those who had it
	version string  // to go on watching from; empty: list first
	epoch   int     // of the Cache, in which version was had
	voided  bool    // the store has no version
	watched watch.Interface
	err     error // why the last attempt failed
	attempt chan struct{}
	signal  chan<- struct{} // the Cache's
	rests   bool            // it has no goroutine until it is due
	due     time.Time
	soonest time.Time // when it is due if it is asked for

	failures int // in a row; this and what is below are its goroutine's
	retry    retry.Backoff
	waits    time.Duration // until it is read again while somebody waits for it
}

func newItem(k store.ObjectKey, kind *kind, signal chan<- struct{}) *item {
	return &item{
		ObjectKey: k, kind: kind, signal: signal, users: map[types.UID]bool{},
		asked: make(chan struct{}, 1), answered: make(chan struct{}), attempt: make(chan struct{}),
		retry: newRetry(),
	}
}

// String names the object for people.
func (it *item) String() string {
	switch {
	case it.Name == "" && it.Kind == bundleKind:
		return it.Kind + "s of signer " + it.Namespace
	case it.Name == "":
		return it.Kind + "s of namespace " + it.Namespace
	case it.Namespace == "":
		return it.Kind + " " + it.Name
	}
	return it.Kind + " " + it.Namespace + "/" + it.Name
}

func (it *item) known() bool { return it.content != nil }

// has reports whether there is an object, or was one that is still used.
func (it *item) has() bool { return it.known() && it.kind.count(it.content) > 0 }

// ask wants an attempt to read soon. The channel is closed when one has ended. The caller
// holds mu.
func (it *item) ask() <-chan struct{} {
	select {
	case it.asked <- struct{}{}:
	default:
	}
	if it.rests && it.soonest.Before(it.due) {
		it.due = it.soonest
		poke(it.signal)
	}
	return it.attempt
}

// answer lets those go on who wait.
func (it *item) answer() {
	select {
	case <-it.answered:
	default:
		close(it.answered)
	}
}

// follow keeps an item up to date until ctx ends, or nothing about it can change, or what a
// node may only get has been read and rests.
func (c *Cache) follow(ctx context.Context, it *item) {
	for {
		began := time.Now()
		select {
		case <-it.asked: // this is it
		default:
		}
		err := c.round(ctx, it, it.failures)
		if ctx.Err() != nil || err == nil && it.known() && !it.gone && it.kind.immutable(it.content) {
			return
		}
		pause := c.after(it, time.Since(began), err)
		if it.kind.get != nil {
			c.rest(it, began, pause, kube.RetryAfter(err))
			return
		}
		if !c.pause(ctx, it, began, pause, kube.RetryAfter(err)) {
			return
		}
	}
}

// after is the pause after a round that took so long.
func (c *Cache) after(it *item, took time.Duration, err error) time.Duration {
	if it.failures++; took > settled {
		it.failures = 1
		it.retry.Reset()
	}
	switch {
	case apierrors.IsForbidden(err) && it.failures <= tooEarly:
		return early(it.failures)
	case err != nil || !c.polls(it.kind):
		return it.retry.Next(kube.RetryAfter(err))
	}
	it.failures = 0
	it.retry.Reset()
	if it.kind.get == nil {
		return pollEvery
	}
	defer c.cfg.Touched()
	return c.again(it)
}

// rest lets an item alone for a time, or for less if it is asked for and the least that the
// server asked for has passed. Meanwhile it has no goroutine: there are two and more for each
// claim, and what requests need of their stacks would stay with them.
func (c *Cache) rest(it *item, began time.Time, d, least time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if it.dropped {
		return
	}
	now := time.Now()
	it.rests, it.due, it.soonest = true, now.Add(d), began.Add(retryMin)
	if free := now.Add(least); free.After(it.soonest) {
		it.soonest = free
	}
	poke(c.signal)
	select {
	case <-it.asked:
		it.ask()
	default:
	}
}

// early is the pause after one of the first refusals.
func early(failures int) time.Duration {
	return retry.Around(2 * retryMin >> (tooEarly - min(failures, tooEarly)))
}

func newRetry() retry.Backoff {
	return retry.Backoff{First: retryMin, Soon: retryMax / 2, Most: retryMax}
}

// pause waits, but for less if the item is asked for, and the least that the server asked
// for has passed. It is false when ctx has ended.
func (c *Cache) pause(ctx context.Context, it *item, began time.Time, d, least time.Duration) bool {
	timer, free := time.NewTimer(d), time.Now().Add(least)
	defer timer.Stop()
	asked := it.asked
	for {
		select {
		case <-timer.C:
			return true
		case <-asked:
			gap := time.Duration(0)
			if it.known() && !c.polls(it.kind) {
				gap = time.Until(began.Add(askedGap)) + retry.Within(retryMin)
			}
			timer.Reset(max(min(gap, d), time.Until(free), 0))
			asked = nil
		case <-ctx.Done():
			return false
		}
	}
}

// round is one attempt: to list the object if it must be, and to watch it for as long
// as that works. A version from before that the server does not go on from is dropped.
func (c *Cache) round(ctx context.Context, it *item, failures int) error {
	for {
		if epoch := c.current(); epoch != it.epoch {
			it.epoch, it.version, it.voided = epoch, "", true
		}
		resumed := it.version != "" && !c.polls(it.kind)
		err := c.once(ctx, it, resumed, failures)
		if !answered(err) {
			return err
		}
		if it.version = ""; !resumed {
			return err
		}
	}
}

func (c *Cache) once(ctx context.Context, it *item, resume bool, failures int) error {
	o := metav1.ListOptions{}
	if it.Name != "" {
		o.FieldSelector = "metadata.name=" + it.Name
	}
	if !resume {
		now, version, err := it.fetch(ctx, c.cfg.Client, o)
		if err == nil {
			err = c.accept(ctx, it, now, version)
		}
		if c.attempted(it, err, failures); err != nil {
			return err
		}
	}
	if c.polls(it.kind) || !it.gone && it.kind.immutable(it.content) {
		return nil
	}
	o.ResourceVersion = it.version
	w, err := it.kind.watch(ctx, c.cfg.Client, it.Namespace, o)
	if c.attempted(it, err, failures); err != nil {
		return err
	}
	defer w.Stop()
	if !c.watching(it, w) {
		return errRewritten
	}
	defer c.watching(it, nil)
	return c.watch(ctx, it, w)
}

// fetch reads what there is now. What was got has no version to go on from.
func (it *item) fetch(ctx context.Context, client *kube.Client, o metav1.ListOptions) (content, string, error) {
	if it.kind.get == nil {
		return it.kind.list(ctx, client, it.Namespace, o)
	}
	now, err := it.kind.get(ctx, client, it.Namespace, it.Name)
	return now, "", err
}

// answered reports whether an error is what the server said, and not that it could
// not be reached.
func answered(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code != 0
}

// watch takes what a watch says until it ends. Its end is no error.
func (c *Cache) watch(ctx context.Context, it *item, w watch.Interface) error {
	for e := range w.ResultChan() {
		switch e.Type {
		case watch.Added, watch.Modified, watch.Deleted:
			before := it.content
			if it.gone {
				before = it.kind.empty()
			}
			now, version := it.kind.apply(before, e)
			if version == "" {
				continue
			}
			if err := c.accept(ctx, it, now, version); err != nil {
				return err
			}
			if !it.gone && it.kind.immutable(it.content) {
				return nil
			}
		case watch.Error:
			return apierrors.FromObject(e.Object)
		}
	}
	return nil
}

// attempted notes how an attempt ended.
func (c *Cache) attempted(it *item, err error, failures int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && it.err == nil {
		c.cfg.Log.Debug("an object cannot be read", "object", it.String(), "error", err)
	}
	if it.err = err; err != nil {
		it.err = fmt.Errorf("read %s: %w", it, err)
	}
	if err == nil || !apierrors.IsForbidden(err) || failures >= tooEarly {
		it.answer()
	}
	close(it.attempt)
	it.attempt = make(chan struct{})
}

// accept stores what the server said, shows it, and tells the pods, unless it is what
// is known already.
func (c *Cache) accept(ctx context.Context, it *item, now content, version string) error {
	gone := false
	if it.Name != "" && it.kind.count(now) == 0 && it.has() {
		now, gone = it.content, true
	}
	data, err := now.Marshal()
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	if it.known() && it.gone == gone {
		if before, err := it.content.Marshal(); err == nil && bytes.Equal(before, data) {
			if it.version = version; !it.voided {
				return nil
			}
		}
	}
	o := store.Object{ObjectKey: it.ObjectKey, Version: version, Gone: gone, Data: data}
	if err := c.cfg.Store.PutObject(ctx, o); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		// Better used than not: it is the disk that has a problem, not the pod.
		c.cfg.Log.Error("an object could not be stored: a restart without the API server would lack it", "object", it.String(), "error", err)
	}
	c.mu.Lock()
	it.content, it.gone, it.version, it.voided = now, gone, version, false
	it.answer()
	users := make([]types.UID, 0, len(it.users))
	for uid := range it.users {
		it.users[uid] = it.users[uid] || !gone && it.has()
		users = append(users, uid)
		c.chain(uid, it)
	}
	c.grows(it)
	c.mu.Unlock()
	for _, uid := range users {
		c.cfg.Changed(uid)
	}
	return nil
}
