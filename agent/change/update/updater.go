package update

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/islet-edge/islet/agent/change/trial"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/download"
	"github.com/islet-edge/islet/internal/poll"
	"github.com/islet-edge/islet/internal/retry"
)

// Config configures New.
type Config struct {
	Stager
	// Offer offers a staged program for a trial. An operator's request, for which anew is true, may repeat a failed
	// trial. Offer returns whether the program will be tried. If not, the staged program is removed.
	Offer func(s *StagedProgram, from string, anew bool) (id string, tried bool, err error)
	// IsRefused reports whether a version is tried only on an operator's request. Its parameter sum is the
	// checksum of the archive. IsRefused may be nil.
	IsRefused func(version, sum string) bool
	// AddUntried records that a program has failed before its trial. The parameter anew is true if an operator has requested the program;
	// the operator then sees the error too. AddUntried may be nil.
	AddUntried func(p trial.Program, from string, how trial.Untried, why string, anew bool)
	// StagedPath returns the path of the program that waits for its trial or is on trial, or "".
	StagedPath func() string
	// CheckOffer returns an error if no program can be offered now. It may be nil.
	CheckOffer func(asked bool) error
	// Follow describes an archive that is checked for a newer version at the interval Every. It may be empty.
	Follow string
	Every  time.Duration
	// Index names the signed index of a staged rollout, which the node follows instead of an archive. The zero value means that it follows
	// no index.
	Index IndexConfig
	// SaveWrites reports whether the followed archive must not be fetched now, to reduce writes to the disk. It does not
	// affect an operator's request. It may be nil.
	SaveWrites func() bool
}

// spareInterval is the interval at which Config.SaveWrites is called while it returns true.
const spareInterval = 10 * time.Minute

// An Updater stages other versions of islet and offers them for a trial. Its methods may be called concurrently.
type Updater struct {
	c    Config
	once sync.Mutex // locked during an update

	attempts attempts // protected by once

	seenLock sync.Mutex // protects seenFile

	mu      sync.Mutex       // protects the fields below
	status  api.UpdateStatus // without its report
	changed chan struct{}    // closed when the outcomes have changed
}

// New returns an Updater. It starts no goroutine.
func New(c Config) *Updater { return &Updater{c: c, changed: make(chan struct{})} }

// Update stages a program and offers it for a trial: see Stage. If o.Dry is true, it only stages the program, and records nothing. This
// also works while another trial is in progress. If o.Back is true, it stages the kept program, and does not use the parameter from.
func (u *Updater) Update(ctx context.Context, from string, o api.UpdateOptions,
	tell func(status string, current, total int64)) (api.Update, error) {
	out, _, err := u.update(o, true, func(refused func(version, sum string) bool) (*StagedProgram, string, error) {
		if o.Back {
			kept, _ := FindPrevious(u.c.Program)
			s, err := u.c.StagePrevious(ctx, tell)
			return s, kept, err
		}
		s, err := u.c.Stage(ctx, from, o.Older, refused, tell)
		return s, redact(from), err
	})
	return out, err
}

// UpdateFrom stages the newest of several archives for this machine, and offers it for a trial. The result is nil if none is newer than the
// running version. If anew is false, a version is not tried again that has failed: the error is then ErrFailed. The error is trial.ErrBusy
// if no trial is possible now.
func (u *Updater) UpdateFrom(ctx context.Context, list []Archive, anew bool, tell Progress) (*api.Update, error) {
	a, err := u.c.chooseArchive(list)
	if a == nil || err != nil {
		return nil, err
	}
	if _, err := u.c.acceptRelease(ctx, &source{archive: a}, false, u.refused(anew)); err != nil {
		return nil, err
	}
	if err := u.CheckOffer(anew); err != nil {
		return nil, err
	}
	in, err := a.Open() // it may have to fetch the archive, and meanwhile an operator can update
	if err != nil {
		return nil, err
	}
	defer in.Close()
	a.Open = func() (io.ReadCloser, error) { return in, nil } // fetchArchive closes it, and so frees its space before the unpacking
	out, tried, err := u.update(api.UpdateOptions{}, anew, func(refused func(version, sum string) bool) (*StagedProgram, string, error) {
		s, err := u.c.stage(ctx, &source{archive: a}, false, refused, tell)
		if s != nil {
			s.Bundled = true
		}
		return s, a.Name, err
	})
	if err == nil && !tried {
		err = busyError{fmt.Errorf("%s: another configuration or version waits for its trial (islet config show)", a.Name)}
	}
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// CheckOffer returns an error if no program can be offered now.
func (u *Updater) CheckOffer(asked bool) error {
	if !u.once.TryLock() {
		return errBusy
	}
	u.once.Unlock()
	return u.checkOffer(asked)
}

// checkOffer is like CheckOffer, but for another update.
func (u *Updater) checkOffer(asked bool) error {
	if u.c.CheckOffer == nil {
		return nil
	}
	err := u.c.CheckOffer(asked)
	if err == nil || errors.Is(err, trial.ErrUnknownKeys) { // which does not end by itself
		return err
	}
	return busyError{err}
}

// A stageFunc prepares a program for a trial. It returns the name of its archive, too.
type stageFunc func(refused func(version, sum string) bool) (*StagedProgram, string, error)

// update offers the program that the function stage prepares, unless o.Dry is true. The result tried is false if
// there will be no trial.
func (u *Updater) update(o api.UpdateOptions, anew bool, stage stageFunc) (none api.Update, tried bool, _ error) {
	if !u.once.TryLock() {
		return none, false, errBusy
	}
	defer u.once.Unlock()
	if !o.Dry { // checked before the fetch
		if err := u.checkOffer(anew); err != nil {
			return none, false, err
		}
	}
	u.c.RemoveOld(u.c.StagedPath())
	s, from, err := stage(u.refused(anew))
	if err != nil {
		untried := untriedError{}
		if errors.As(err, &untried) && !o.Dry {
			u.addUntried(untried, from, anew)
		}
		return none, false, err
	}
	out := api.Update{Version: s.Version}
	s.DespitePods = o.DespitePods
	if !o.Dry {
		out.ID, tried, err = u.c.Offer(s, from, anew)
	}
	if tried {
		u.c.RemoveOld(s.Program) // it may have replaced a program that was waiting for its trial
	} else {
		u.c.RemoveOld(u.c.StagedPath())
	}
	return out, tried, err
}

// refused returns a function that reports whether a version must not be tried. It is nil for an operator's request.
func (u *Updater) refused(anew bool) func(version, sum string) bool {
	if anew {
		return nil
	}
	return func(version, sum string) bool {
		return u.c.IsRefused != nil && u.c.IsRefused(version, sum)
	}
}

var errBusy = busyError{errors.New("another archive is being fetched or tested; try again later")}

// A busyError means that an update was not attempted, because another update or trial was in progress.
type busyError struct{ error }

func (e busyError) Unwrap() error { return e.error }

// Is reports whether err is trial.ErrBusy.
func (busyError) Is(err error) bool { return err == trial.ErrBusy }

// Run follows the archive of Config.Follow or the index of Config.Index until ctx ends. For a version that is not newer,
// or that has failed, it reads only the release or the index, so a check costs about a kilobyte. It does not check while
// a trial is in progress or waiting, or while Config.SaveWrites returns true. If the link or the server fails, Run retries
// after a minute, and then at growing intervals. If the archive is invalid, Run waits for the regular interval, because
// the next attempt may have to fetch the whole archive.
func (u *Updater) Run(ctx context.Context) error {
	if u.c.Follow == "" && u.c.Index.Source == "" {
		<-ctx.Done()
		return nil
	}
	again := retry.Backoff{FirstWindow: firstRetry, SecondWindow: u.c.Every, MaxWindow: u.c.Every}
	said := ""
	poll.Run(ctx, 0, func(ctx context.Context) time.Duration {
		wait := u.c.Every
		err := u.stageFollowed(ctx)
		held := heldError{}
		u.setChecked(err)
		switch {
		case ctx.Err() != nil:
		case errors.As(err, &held):
			again.Reset()
			said = ""
			wait = held.wait(u.c.Index.Now(), u.c.Every)
		case errors.Is(err, errSpared):
			wait = min(spareInterval, u.c.Every)
		case errors.As(err, new(busyError)):
			wait = again.Next(0)
		case errors.As(err, new(download.UnreachableError)):
			wait = again.Next(0)
			said = u.warn(said, err)
		case errors.Is(err, ErrOlder), errors.Is(err, ErrFailed), err == nil:
			again.Reset()
			said = ""
		default:
			again.Reset()
			said = u.warn(said, err)
		}
		return wait
	})
	return nil
}

// firstRetry is the delay of the first retry after the link or the server failed.
const firstRetry = time.Minute

// errSpared means that the check was skipped because Config.SaveWrites returned true.
var errSpared = errors.New("too much was written to the disk today (edge.flashBudget): a newer version is fetched later")

// stageFollowed stages the followed archive, or the archive of the followed index, and offers the program for a trial if it is newer.
func (u *Updater) stageFollowed(ctx context.Context) error {
	if u.c.SaveWrites != nil && u.c.SaveWrites() {
		return errSpared
	}
	from, want := u.c.Follow, (*indexed)(nil)
	if u.c.Index.Source != "" {
		var err error
		if want, err = u.readIndex(ctx); err != nil || want == nil {
			return err
		}
		from = want.name
	}
	out, _, err := u.update(api.UpdateOptions{}, false, func(refused func(version, sum string) bool) (*StagedProgram, string, error) {
		src, err := newSource(from, u.c.Client)
		if err != nil {
			return nil, "", err
		}
		src.indexed = want
		s, err := u.stageCounted(ctx, src, refused)
		return s, redact(from), err
	})
	if err == nil {
		u.c.Log.Info("a newer version was found", "version", out.Version, "id", out.ID)
	}
	return err
}

// warn logs an error, unless it equals the last one that was logged. It returns the text of the error.
func (u *Updater) warn(said string, err error) string {
	switch {
	case err.Error() == said:
	case u.c.Index.Source != "":
		u.c.Log.Warn("cannot update from the followed index", "index", redact(u.c.Index.Source), "error", err)
	default:
		u.c.Log.Warn("cannot update from the followed archive", "archive", redact(u.c.Follow), "error", err)
	}
	return err.Error()
}
