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
	pollEvery      = time.Minute      // interval of reads with the strategies Cache and Get
	rarePoll       = 10 * time.Minute // interval for get-only objects that no pod waits for
	claimPoll      = 80 * time.Second // default of Config.Every
	waitingPoll    = 2 * time.Second  // first interval for claims that a pod waits for
	maxWaitingPoll = 30 * time.Second // last interval for claims that a pod waits for
	settledTime    = time.Minute      // minimum duration of a watch that resets the back-off
	retryMin       = time.Second      // window of the first retry
	retryMax       = time.Minute      // maximum window, reached after an outage of half an hour
	askedGap       = 5 * time.Second  // minimum interval between two attempts that Retry causes, because the link may go up and down often
	earlyRefusals  = 5                // number of first refusals that may only mean that the server does not know the pod yet
)

// An item is a unit that one goroutine reads and caches: one object, all services of a namespace, or all trust bundles of a signer.
// Different locks protect its parts.
//
//	new --listed--> known --watched--> known ...     an answer, which may be "there is none"
//	   \--failed--> answered, not known              err
type item struct {
	// These fields are set by newItem and never change.
	store.ObjectKey
	kind     *kind
	requests chan struct{}   // capacity 1; a value requests an attempt
	signal   chan<- struct{} // the channel of the Cache

	usage
	reading
	parkTimes
	follower
}

// usage records which pods use an item. The Cache's mu protects it.
type usage struct {
	users   map[types.UID]bool // by pod; true if the pod may use the object after its deletion
	unread  map[types.UID]*firstRead
	stop    context.CancelFunc // ends the goroutine; nil if it was not started
	dropped bool               // no pod uses the item
}

// reading contains the result of the attempts to read the item. Only the item's goroutine changes these fields, and it holds the Cache's mu
// for that. It may read them without mu. Load sets them before Run.
type reading struct {
	content      content       // nil before the first answer
	gone         bool          // the object was deleted; content is kept for the pods that had it
	err          error         // error of the last attempt
	firstAnswer  chan struct{} // closed when content is known, or the first attempt has failed
	attemptEnded chan struct{} // closed and replaced at the end of each attempt
	watched      watch.Interface
}

// parkTimes contains the times at which a parked item gets a goroutine again. The Cache's mu protects it.
type parkTimes struct {
	parked  bool
	due     time.Time
	soonest time.Time // new value of due when a read is requested
}

// A follower is the state of the item's goroutine. No other goroutine uses it. Only Load sets it, before Run.
type follower struct {
	version      string // resource version from which the watch continues; empty if the object must be listed first
	epoch        int    // the Cache's epoch when version was read
	voided       bool   // the stored version was removed
	failures     int    // number of consecutive failures
	retry        retry.Backoff
	readInterval time.Duration // current interval of reads while a pod waits for the object
}

func newItem(k store.ObjectKey, kind *kind, signal chan<- struct{}) *item {
	return &item{
		ObjectKey: k, kind: kind, signal: signal, requests: make(chan struct{}, 1),
		usage:    usage{users: map[types.UID]bool{}, unread: map[types.UID]*firstRead{}},
		reading:  reading{firstAnswer: make(chan struct{}), attemptEnded: make(chan struct{})},
		follower: follower{retry: newRetry()},
	}
}

// String returns the object's kind and name. It is used in messages.
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

func (it *item) isKnown() bool { return it.content != nil }

// exists reports whether the object exists, or was deleted and is kept for its pods.
func (it *item) exists() bool { return it.isKnown() && it.kind.count(it.content) > 0 }

// requestRead requests an attempt to read the object. The returned channel is closed at the end of an attempt. The caller must hold mu.
func (it *item) requestRead() <-chan struct{} {
	select {
	case it.requests <- struct{}{}:
	default:
	}
	if it.parked && it.soonest.Before(it.due) {
		it.due = it.soonest
		signalChannel(it.signal)
	}
	return it.attemptEnded
}

// markAnswered wakes all callers that wait for the first answer.
func (it *item) markAnswered() {
	select {
	case <-it.firstAnswer:
	default:
		close(it.firstAnswer)
	}
}

// followItem keeps an item up to date until ctx ends. It returns earlier if the object is immutable. For a get-only object, it returns
// after one read.
func (c *Cache) followItem(ctx context.Context, it *item) {
	for {
		began := time.Now()
		select {
		case <-it.requests: // the attempt below serves this request
		default:
		}
		err := c.readAndWatch(ctx, it, it.failures)
		if ctx.Err() != nil || err == nil && it.isKnown() && !it.gone && it.kind.isImmutable(it.content) {
			return
		}
		pause := c.nextPause(it, time.Since(began), err)
		if it.kind.get != nil {
			c.park(it, began, pause, kube.RetryAfter(err))
			return
		}
		if !c.waitForRead(ctx, it, began, pause, kube.RetryAfter(err)) {
			return
		}
	}
}

// nextPause returns the pause after an attempt that took the given time.
func (c *Cache) nextPause(it *item, took time.Duration, err error) time.Duration {
	it.failures++
	if took > settledTime {
		it.failures = 1
		it.retry.Reset()
	}
	switch {
	case apierrors.IsForbidden(err) && it.failures <= earlyRefusals:
		return earlyPause(it.failures)
	case err != nil || !c.isPolled(it.kind):
		return it.retry.Next(kube.RetryAfter(err))
	}
	it.failures = 0
	it.retry.Reset()
	if it.kind.get == nil {
		return pollEvery
	}
	defer c.cfg.OnPeriodicTask()
	return c.pollInterval(it)
}

// park stops reading an item for a time. A requested read ends this pause earlier, but not before the server's Retry-After. A parked item
// has no goroutine, to save memory: each claim has two or more items, and each goroutine would keep the memory of its stack, which the
// request has enlarged.
func (c *Cache) park(it *item, began time.Time, d, least time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if it.dropped {
		return
	}
	now := time.Now()
	it.parked, it.due, it.soonest = true, now.Add(d), began.Add(retryMin)
	if free := now.Add(least); free.After(it.soonest) {
		it.soonest = free
	}
	signalChannel(c.signal)
	select {
	case <-it.requests:
		it.requestRead()
	default:
	}
}

// earlyPause returns the pause after one of the first refusals.
func earlyPause(failures int) time.Duration {
	return retry.Jitter(2 * retryMin >> (earlyRefusals - min(failures, earlyRefusals)))
}

func newRetry() retry.Backoff {
	return retry.Backoff{FirstWindow: retryMin, SecondWindow: retryMax / 2, MaxWindow: retryMax}
}

// waitForRead waits until the next read of an item. A requested read ends the wait earlier, but not before the server's Retry-After. The
// result is false if ctx has ended.
func (c *Cache) waitForRead(ctx context.Context, it *item, began time.Time, d, least time.Duration) bool {
	timer, free := time.NewTimer(d), time.Now().Add(least)
	defer timer.Stop()
	asked := it.requests
	for {
		select {
		case <-timer.C:
			return true
		case <-asked:
			gap := time.Duration(0)
			if it.isKnown() && !c.isPolled(it.kind) {
				gap = time.Until(began.Add(askedGap)) + retry.RandomWait(retryMin)
			}
			timer.Reset(max(min(gap, d), time.Until(free), 0))
			asked = nil
		case <-ctx.Done():
			return false
		}
	}
}

// readAndWatch lists the object if necessary, and watches it until the watch fails. If the server cannot continue from the last version,
// readAndWatch lists the object again.
func (c *Cache) readAndWatch(ctx context.Context, it *item, failures int) error {
	for {
		if epoch := c.currentEpoch(); epoch != it.epoch {
			it.epoch, it.version, it.voided = epoch, "", true
		}
		resumed := it.version != "" && !c.isPolled(it.kind)
		err := c.attemptOnce(ctx, it, resumed, failures)
		if !isAnswer(err) {
			return err
		}
		it.version = ""
		if !resumed {
			return err
		}
	}
}

func (c *Cache) attemptOnce(ctx context.Context, it *item, resume bool, failures int) error {
	o := metav1.ListOptions{}
	if it.Name != "" {
		o.FieldSelector = "metadata.name=" + it.Name
	}
	if !resume {
		waiting := c.listUnread(it)
		now, version, err := it.fetch(ctx, c.cfg.Client, o)
		if err == nil {
			err = c.accept(ctx, it, now, version)
		}
		c.recordRead(it, waiting, err)
		c.recordAttempt(it, err, failures)
		if err != nil {
			return err
		}
	}
	if c.isPolled(it.kind) || !it.gone && it.kind.isImmutable(it.content) {
		return nil
	}
	o.ResourceVersion = it.version
	w, err := it.kind.watch(ctx, c.cfg.Client, it.Namespace, o)
	c.recordAttempt(it, err, failures)
	if err != nil {
		return err
	}
	defer w.Stop()
	if !c.recordWatch(it, w) {
		return errRewritten
	}
	defer c.recordWatch(it, nil)
	return c.watch(ctx, it, w)
}

// fetch lists or gets the object. The second result is the version from which a watch can continue. It is empty after a get.
func (it *item) fetch(ctx context.Context, client *kube.Client, o metav1.ListOptions) (content, string, error) {
	if it.kind.get == nil {
		return it.kind.list(ctx, client, it.Namespace, o)
	}
	now, err := it.kind.get(ctx, client, it.Namespace, it.Name)
	return now, "", err
}

// isAnswer reports whether the server has sent the error. It returns false if the server could not be reached.
func isAnswer(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code != 0
}

// watch applies the events of a watch until it ends. The end of a watch is not an error.
func (c *Cache) watch(ctx context.Context, it *item, w watch.Interface) error {
	for e := range w.ResultChan() {
		switch e.Type {
		case watch.Added, watch.Modified, watch.Deleted:
			before := it.content
			if it.gone {
				before = it.kind.newContent()
			}
			now, version := it.kind.apply(before, e)
			if version == "" {
				continue
			}
			if err := c.accept(ctx, it, now, version); err != nil {
				return err
			}
			if !it.gone && it.kind.isImmutable(it.content) {
				return nil
			}
		case watch.Error:
			return apierrors.FromObject(e.Object)
		}
	}
	return nil
}

// recordAttempt records the result of an attempt.
func (c *Cache) recordAttempt(it *item, err error, failures int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && it.err == nil {
		c.cfg.Log.Debug("an object cannot be read", "object", it.String(), "error", err)
	}
	it.err = err
	if err != nil {
		it.err = fmt.Errorf("read %s: %w", it, err)
	}
	if err == nil || !apierrors.IsForbidden(err) || failures >= earlyRefusals {
		it.markAnswered()
	}
	close(it.attemptEnded)
	it.attemptEnded = make(chan struct{})
}

// accept stores a new state of the object, publishes it, and notifies the pods. It does nothing if the state has not changed.
func (c *Cache) accept(ctx context.Context, it *item, now content, version string) error {
	gone := false
	if it.Name != "" && it.kind.count(now) == 0 && it.exists() {
		now, gone = it.content, true
	}
	data, err := now.Marshal()
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	if it.isKnown() && it.gone == gone {
		if before, err := it.content.Marshal(); err == nil && bytes.Equal(before, data) {
			it.version = version
			if !it.voided {
				return nil
			}
		}
	}
	users, err := c.storeAnswer(ctx, it, now, store.Object{ObjectKey: it.ObjectKey, Version: version, Gone: gone, Data: data})
	for _, uid := range users {
		c.cfg.Changed(uid)
	}
	return err
}

// storeAnswer stores a new state of the object and publishes it. It returns the pods that use the object. It returns an error only if ctx
// has ended.
func (c *Cache) storeAnswer(ctx context.Context, it *item, now content, o store.Object) (users []types.UID, err error) {
	c.storing.RLock()
	defer c.storing.RUnlock()
	if err := c.cfg.Store.PutObject(ctx, o); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		// Use the object although it was not stored, because a problem of the disk must not affect the pod. The store repeats the write.
		c.cfg.Log.Error("an object could not be stored yet: until then it is missing after a restart without the API server",
			"object", it.String(), "error", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	it.content, it.gone, it.version, it.voided = now, o.Gone, o.Version, false
	it.markAnswered()
	for uid := range it.users {
		it.users[uid] = it.users[uid] || !o.Gone && it.exists()
		users = append(users, uid)
		c.addReferenced(uid, it)
	}
	c.readGrowing(it)
	return users, nil
}
