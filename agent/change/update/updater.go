package update

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/retry"
)

// Config is what New needs.
type Config struct {
	Stager
	// Offer has a staged program tried. Tried: it will be; else it is removed again. A person
	// who asks (anew) has one tried again that failed.
	Offer func(s *Staged, from string, anew bool) (id string, tried bool, err error)
	// Refused reports whether a version, of an archive with that sum, failed when it was tried;
	// nil: none has.
	Refused func(version, sum string) bool
	// Kept is the path of a program that is still to be tried; empty: there is none.
	Kept func() string
	// Busy says why none can be offered now; nil: one always can.
	Busy func(asked bool) error
	// Follow is an archive that is looked for every Every; empty: none is.
	Follow string
	Every  time.Duration
	// Wait says that the archive that is followed is to wait, to spare the disk: a person who
	// asks need not. Nil: never.
	Wait func() bool
}

// spared is how often it is asked whether what is followed has to wait still.
const spared = 10 * time.Minute

// An Updater has other versions of islet tried. Its methods may be called at once.
type Updater struct {
	c    Config
	once sync.Mutex // one at a time
}

// New starts nothing.
func New(c Config) *Updater { return &Updater{c: c} }

// Update gets a program ready and has it tried: see Stage. Dry: it only gets ready, also while
// something else is on trial.
func (u *Updater) Update(ctx context.Context, from string, o api.UpdateOptions,
	tell func(status string, current, total int64)) (none api.Update, _ error) {
	return u.update(ctx, from, o, true, tell)
}

func (u *Updater) update(ctx context.Context, from string, o api.UpdateOptions, anew bool, tell Tell) (none api.Update, _ error) {
	if !u.once.TryLock() {
		return none, occupied{errors.New("another archive is being fetched or tested; try again when that has ended")}
	}
	defer u.once.Unlock()
	if u.c.Busy != nil && !o.Dry { // before anything is fetched
		if err := u.c.Busy(anew); err != nil {
			return none, occupied{err}
		}
	}
	u.c.Tidy(u.c.Kept())
	refused := u.c.Refused
	if anew {
		refused = nil
	}
	s, err := u.c.Stage(ctx, from, o.Older, refused, tell)
	if err != nil {
		return none, err
	}
	out := api.Update{Version: s.Version}
	tried := false
	s.DespitePods = o.DespitePods
	if !o.Dry {
		out.ID, tried, err = u.c.Offer(s, short(from), anew)
	}
	if tried {
		u.c.Tidy(s.Program) // also one that waited, and gave way
	} else {
		u.c.Tidy(u.c.Kept())
	}
	return out, err
}

// occupied is an error of what goes on already: nothing was looked at.
type occupied struct{ error }

func (o occupied) Unwrap() error { return o.error }

// Run follows an archive until ctx ends, if there is one to be followed. What is not newer, or
// has failed its trial, is known by its release, of which a look costs a kilobyte. While
// something is tried, or about to be, or the disk is to be spared, there is no look. A link or
// server that failed is tried again after a minute, and then ever later; what is wrong with the
// archive itself is looked at when the next look is due, as all of it may have to be fetched for
// that.
func (u *Updater) Run(ctx context.Context) error {
	if u.c.Follow == "" {
		<-ctx.Done()
		return nil
	}
	again := retry.Backoff{First: firstRetry, Soon: u.c.Every, Most: u.c.Every}
	for said := ""; ; {
		wait := u.c.Every
		switch err := u.look(ctx); {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errSpared):
			wait = min(spared, u.c.Every)
		case errors.As(err, new(occupied)):
			wait = again.Next(0)
		case errors.As(err, new(unreached)):
			wait = again.Next(0)
			said = u.warn(said, err)
		case errors.Is(err, ErrOlder), errors.Is(err, ErrFailed), err == nil:
			again.Reset()
			said = ""
		default:
			again.Reset()
			said = u.warn(said, err)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// firstRetry is the window of the first try after a link or a server failed.
const firstRetry = time.Minute

// errSpared says that the disk is to be spared.
var errSpared = errors.New("the disk is to be spared")

// look has what is followed tried, if it is newer.
func (u *Updater) look(ctx context.Context) error {
	if u.c.Wait != nil && u.c.Wait() {
		return errSpared
	}
	out, err := u.update(ctx, u.c.Follow, api.UpdateOptions{}, false, nil)
	if err == nil {
		u.c.Log.Info("a newer version was found", "version", out.Version, "id", out.ID)
	}
	return err
}

// warn logs why nothing was found, unless it was said.
func (u *Updater) warn(said string, err error) string {
	if err.Error() != said {
		u.c.Log.Warn("no other version could be had from where the node follows them", "archive", short(u.c.Follow), "error", err)
	}
	return err.Error()
}
