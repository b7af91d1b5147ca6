package feed

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/download"
	"github.com/islet-edge/islet/internal/durable"
	"github.com/islet-edge/islet/internal/poll"
	"github.com/islet-edge/islet/internal/printable"
	"github.com/islet-edge/islet/internal/retry"
)

const (
	// firstRetry is the delay of the first retry after the link or the server failed, and of a retry while the node is busy.
	firstRetry = time.Minute
	// maxRefused is the maximum time after which a bundle that was refused is read again.
	maxRefused = 24 * time.Hour
	// spareInterval is the interval at which FollowConfig.SaveWrites is called while it returns true.
	spareInterval = 10 * time.Minute
	// storeEvery limits the writes to the disk: the time of the next request is stored again only if it differs from the stored time by
	// storeEvery or more. In addition, the time is stored after the first answered request since the start, so that a node that starts
	// often keeps the interval.
	storeEvery = 24 * time.Hour
	// storeRetryAfter is the minimum interval at which the time of a Retry-After is stored.
	storeRetryAfter = time.Hour
	// maxSpread is the maximum time over which the requests of nodes that start together are spread.
	maxSpread = time.Hour
)

// Errors of an Applier.
var (
	// ErrDone means that the node must not try the bundle by itself: its number is not greater than the highest one.
	ErrDone = errors.New("its number is not greater than the highest one on this node")
	// ErrBusy means that the bundle was not tried, because the node was busy.
	ErrBusy = errors.New("the node is busy with another bundle or trial")
)

// A Seen identifies a bundle that was read from a source.
type Seen struct {
	poll.Validators
	Name   string        `json:"name,omitempty"`
	Number int64         `json:"number,omitempty"`
	Digest digest.Digest `json:"digest,omitempty"` // of the contents manifest
}

// An Applier tries the bundle of a source. *bundle.Node implements it.
type Applier interface {
	// ApplyFollowed returns the bundle that the source has, also if it returns an error. It returns ErrSame if that is the bundle last.
	ApplyFollowed(ctx context.Context, from string, last Seen) (Seen, error)
}

// A FollowConfig configures a Follower.
type FollowConfig struct {
	Source     string // as for Check
	Every      time.Duration
	File       string           // of the state
	Now        func() time.Time // the best known time
	SaveWrites func() bool      // reports whether no bundle must be fetched now, to reduce writes to the disk. It may be nil
	Applier    Applier
	Log        *slog.Logger
}

// maxProblem is the maximum length of a problem, in bytes.
const maxProblem = 1 << 10

// A state is what a Follower keeps over reboots.
type state struct {
	Source string    `json:"source"`
	Seen   Seen      `json:"seen"`          // the last bundle that was tried, or that must not be tried
	Next   time.Time `json:"next,omitzero"` // of the next request
}

// A Follower requests a bundle at intervals, and applies it if it has a greater number. One goroutine runs it. A bundle that was refused is
// read again after growing intervals, and at once if the source has another one.
type Follower struct {
	c     FollowConfig
	state state
	pace  *poll.Pace

	stored  bool      // the time of the next request was stored since the start, after a request that the source answered
	asked   time.Time // when the time of a Retry-After was stored last
	refused Seen      // zero if none
	again   retry.Backoff
	retryAt time.Time // when the refused bundle is read again
	said    string    // the last error that was logged
	waits   string    // what the last bundle waits for
	reads   int       // how often a bundle was read in succession although the node was busy

	mu     sync.Mutex // protects status
	status api.BundleSource
}

// NewFollower returns a Follower. It starts nothing.
func NewFollower(c FollowConfig) *Follower {
	if c.SaveWrites == nil {
		c.SaveWrites = func() bool { return false }
	}
	return &Follower{
		c: c, pace: poll.NewPace(c.Every, min(firstRetry, c.Every), c.Every), status: api.BundleSource{Source: Redact(c.Source)},
		again: retry.Backoff{FirstWindow: c.Every, SecondWindow: maxRefused, MaxWindow: maxRefused},
	}
}

// Status returns the source, the times of the last and the next request, and the last problem.
func (f *Follower) Status() *api.BundleSource {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.status
	return &out
}

// Run follows the source until ctx ends.
func (f *Follower) Run(ctx context.Context) {
	poll.Run(ctx, f.begin(), f.round)
}

// begin reads the state, and returns the time until the first request. After a restart of the agent or of the machine, the node waits until
// the stored time. This time may be past although the node has made requests since then, so one request may be early.
func (f *Follower) begin() time.Duration {
	if err := f.load(); err != nil {
		f.c.Log.Warn("the state of the followed bundle cannot be read: it is read anew", "error", err)
	}
	wait := f.state.Next.Sub(f.c.Now())
	switch {
	case f.state.Next.IsZero():
		wait = retry.RandomWait(min(f.c.Every/10, firstRetry/6))
	case wait <= 0:
		wait = rand.N(min(f.c.Every/10, maxSpread) + 1) // perhaps 0: a node that is on for minutes only must make a request at some time
	}
	wait = min(wait, f.c.Every) // the clock may be wrong
	f.mu.Lock()
	f.status.Next = f.c.Now().Add(wait).UTC()
	f.mu.Unlock()
	return wait
}

func (f *Follower) load() error {
	data, err := os.ReadFile(f.c.File)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(data, &f.state)
	}
	if err != nil || f.state.Source != f.c.Source {
		f.state = state{}
	}
	return err
}

// round makes one request, and returns the time until the next one.
func (f *Follower) round(ctx context.Context) time.Duration {
	before := f.state
	wait, problem, store := f.check(ctx)
	problem = printable.Cut(problem, maxProblem) // it may have a text of the server
	if ctx.Err() != nil {
		return 0
	}
	now := f.c.Now().UTC()
	next := now.Add(wait)
	f.state.Source = f.c.Source
	if store || f.state.Seen != before.Seen || next.Sub(before.Next).Abs() >= storeEvery {
		f.state.Next = next
		if err := f.save(); err != nil {
			f.c.Log.Warn("the state of the followed bundle cannot be stored", "error", err)
		}
	}
	f.mu.Lock()
	f.status.Checked, f.status.Next, f.status.Problem = now, next, cmp.Or(problem, f.waits)
	f.mu.Unlock()
	if problem != "" && problem != f.said {
		f.c.Log.Warn("the followed bundle cannot be used", "source", Redact(f.c.Source), "reason", problem)
	}
	f.said = problem
	return wait
}

func (f *Follower) save() error {
	data, err := json.Marshal(f.state)
	if err != nil {
		return err
	}
	return durable.Write(f.c.File, data, 0o600)
}

// check tries the bundle of the source. It returns the time until the next request, the problem, and whether the time must be stored.
func (f *Follower) check(ctx context.Context) (wait time.Duration, problem string, store bool) {
	if f.c.SaveWrites() {
		problem = "too much was written to the disk today (edge.flashBudget): the bundle is fetched later"
		return min(spareInterval, f.c.Every), problem, false
	}
	last := f.state.Seen
	if f.refused != (Seen{}) {
		last = Seen{}
		if time.Now().Before(f.retryAt) {
			last = f.refused
		}
	}
	f.waits = ""
	defer func() {
		if f.waits == "" {
			f.reads = 0
		}
	}()
	seen, err := f.c.Applier.ApplyFollowed(ctx, f.c.Source, last)
	lost := download.UnreachableError{}
	switch {
	case errors.Is(err, ErrSame) && f.refused != (Seen{}):
		f.refused.Validators = seen.Validators
		return f.answered(f.said)
	case errors.Is(err, ErrSame):
		f.state.Seen.Validators = seen.Validators
		return f.answered("")
	case err == nil || errors.Is(err, ErrDone):
		f.state.Seen, f.refused = seen, Seen{}
		f.again.Reset()
		return f.answered("")
	case errors.Is(err, ErrBusy):
		f.waits = printable.Cut(err.Error(), maxProblem)
		return f.busyWait(seen), "", false
	case errors.As(err, &lost):
		return f.pace.Next(false, lost.RetryAfter), err.Error(), f.storesRetryAfter(lost.RetryAfter)
	}
	seen.Name, seen.Number = "", 0 // it is not known to this node
	if seen.Digest != f.refused.Digest || seen.Digest == "" && seen != f.refused {
		f.again.Reset()
	}
	f.refused = seen
	f.retryAt = time.Now().Add(f.c.Every + f.again.Next(0))
	return f.answered(err.Error())
}

// answered returns the results of check after a request that the source has answered. The time is stored after the first such request since
// the start. It is not stored after a request that failed, or while the node is busy, because that time says nothing about the pace.
func (f *Follower) answered(problem string) (wait time.Duration, _ string, store bool) {
	store, f.stored = !f.stored, true
	return f.pace.Next(true, 0), problem, store
}

// storesRetryAfter reports whether the time that a server has requested must be stored, so that the node respects it after a restart.
func (f *Follower) storesRetryAfter(d time.Duration) bool {
	if now := time.Now(); d > firstRetry && (f.asked.IsZero() || now.Sub(f.asked) >= storeRetryAfter) {
		f.asked = now
		return true
	}
	return false
}

// busyWait returns the time until the next request if the node was busy. If the bundle was read before that was known, the time grows,
// because a node without a link to its API server can be busy for days.
func (f *Follower) busyWait(seen Seen) time.Duration {
	wait := min(firstRetry, f.c.Every)
	if seen.Digest == "" {
		return wait
	}
	for range f.reads {
		if wait *= 2; wait >= f.c.Every {
			return f.c.Every
		}
	}
	f.reads++
	return wait
}
