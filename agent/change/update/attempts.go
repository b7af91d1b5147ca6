package update

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/islet-edge/islet/internal/release"
)

const (
	// maxAttempts is the number of times that the node fetches a followed program without a trial before it waits.
	maxAttempts = 3
	// attemptWait is the minimum interval between further fetches of this program.
	attemptWait = 24 * time.Hour
)

// attempts counts the fetches of one followed program that did not lead to a trial. A trial restarts the agent, which resets the count.
type attempts struct {
	id    string // of the program
	count int
	last  time.Time
	why   string // why the last fetch did not lead to a trial
}

// check returns an error if the program was fetched too often, so that its next fetch must wait.
func (a *attempts) check(id, version string) error {
	if a.id != id || a.count < maxAttempts || time.Since(a.last) >= attemptWait {
		return nil
	}
	return fmt.Errorf("version %s was fetched %d times without a trial, and is not fetched again for a day: %s", version, a.count, a.why)
}

// add counts a fetch.
func (a *attempts) add(id, why string) {
	if a.id != id {
		*a = attempts{id: id}
	}
	a.count, a.last, a.why = a.count+1, time.Now(), why
}

// stageCounted stages a followed program. It returns an error instead if the program was fetched too often. The caller has locked u.once.
func (u *Updater) stageCounted(ctx context.Context, src *source, refused func(version, sum string) bool) (*StagedProgram, error) {
	var waits error
	s, err := u.c.stage(ctx, src, false, func(version, sum string) bool {
		if refused(version, sum) {
			return true
		}
		waits = u.attempts.check(release.ProgramID(version, sum), version)
		return waits != nil
	}, nil)
	untried := untriedError{}
	switch {
	case waits != nil:
		return nil, waits
	case err == nil:
		u.attempts.add(release.ProgramID(s.Version, s.Sum), "it was given up before its trial")
	case errors.As(err, &untried):
		u.attempts.add(release.ProgramID(untried.version, untried.sum), err.Error())
	}
	return s, err
}
