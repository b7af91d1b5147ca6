package update

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/islet-edge/islet/agent/api"
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

// Update gets a program ready and has it tried: see Stage. Dry: it only gets ready.
func (u *Updater) Update(ctx context.Context, from string, older, dry bool, tell func(status string, current, total int64)) (none api.Update, _ error) {
	return u.update(ctx, from, older, dry, true, tell)
}

func (u *Updater) update(ctx context.Context, from string, older, dry, anew bool, tell Tell) (none api.Update, _ error) {
	if !u.once.TryLock() {
		return none, errors.New("another archive is being fetched or tested; try again when that has ended")
	}
	defer u.once.Unlock()
	if err := u.busy(anew); err != nil { // before anything is fetched
		return none, err
	}
	u.c.Tidy(u.c.Kept())
	refused := u.c.Refused
	if anew {
		refused = nil
	}
	s, err := u.c.Stage(ctx, from, older, refused, tell)
	if err != nil {
		return none, err
	}
	out := api.Update{Version: s.Version}
	tried := false
	if !dry {
		out.ID, tried, err = u.c.Offer(s, short(from), anew)
	}
	if !tried {
		u.c.Tidy(u.c.Kept())
	}
	return out, err
}

func (u *Updater) busy(asked bool) error {
	if u.c.Busy == nil {
		return nil
	}
	return u.c.Busy(asked)
}

// Run follows an archive until ctx ends, if there is one to be followed. What is not newer, or
// has failed its trial, is known by its release, of which a look costs a kilobyte.
func (u *Updater) Run(ctx context.Context) error {
	if len(u.c.Keys) > 0 {
		u.c.Tidy(u.c.Kept())
	}
	if u.c.Follow == "" {
		<-ctx.Done()
		return nil
	}
	said := ""
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-next.C:
		case <-ctx.Done():
			return nil
		}
		if u.c.Wait != nil && u.c.Wait() {
			next.Reset(min(spared, u.c.Every))
			continue
		}
		next.Reset(u.c.Every)
		out, err := u.update(ctx, u.c.Follow, false, false, false, nil)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrOlder), errors.Is(err, ErrFailed):
		case err != nil && err.Error() != said:
			said = err.Error()
			u.c.Log.Warn("no other version could be had from where the node follows them", "archive", short(u.c.Follow), "error", err)
		case err == nil:
			said = ""
			u.c.Log.Info("a newer version was found", "version", out.Version, "id", out.ID)
		}
	}
}
