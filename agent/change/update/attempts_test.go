package update

import (
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/islet-edge/islet/internal/api"
)

// TestAttempts checks that a followed program that is fetched again and again without a trial waits for a day after the third fetch: one
// whose self-test has no result, and one that is given up before its trial. It is not reported as unfit. An operator's request does not
// wait.
func TestAttempts(t *testing.T) {
	for _, how := range []string{"full", "good"} {
		synctest.Test(t, func(t *testing.T) {
			w := newIndexWorld(t)
			file := archive(t, w.dir, "islet.tar.gz", "0.2.0", runtime.GOARCH, program(t, how), w.key)
			u := w.updater("lab", func(c *Config) { c.Index.Source, c.Follow = "", file })
			take := func() bool {
				t.Helper()
				_, err := w.take(u)
				if (err == nil) != (how == "good" && len(w.offered) > 0) || errors.As(err, new(unfitError)) {
					t.Errorf("%s: %v", how, err)
				}
				return len(w.offered) > 0 || errors.As(err, new(untestedError))
			}
			for i := range 5 {
				if fetched := take(); fetched != (i < maxAttempts) {
					t.Errorf("%s, attempt %d: fetched: %v", how, i, fetched)
				}
				time.Sleep(time.Hour) // in the bubble's time
			}
			if s := u.Status(); s.Problem == "" || len(u.unfit) > 0 {
				t.Errorf("%s: %+v, %+v", how, s, u.unfit)
			}
			if _, err := u.Update(t.Context(), file, api.UpdateOptions{}, nil); (err == nil) != (how == "good") ||
				err != nil && !errors.As(err, new(untestedError)) {
				t.Errorf("%s: an operator's request: %v", how, err)
			}
			time.Sleep(attemptWait - 3*time.Hour)
			if !take() || take() {
				t.Errorf("%s: not fetched once after a day", how)
			}
			archive(t, w.dir, "islet.tar.gz", "0.2.1", runtime.GOARCH, program(t, "full"), w.key)
			if _, err := w.take(u); !errors.As(err, new(untestedError)) {
				t.Errorf("another version waits too: %v", err)
			}
		})
	}
}

// TestAttemptsLate checks that a program is reported as unfit after three self-tests that did not end in time. The files of such a
// self-test are removed.
func TestAttemptsLate(t *testing.T) {
	w := newIndexWorld(t)
	w.testTime = 500 * time.Millisecond
	file := archive(t, w.dir, "islet.tar.gz", "0.2.0", runtime.GOARCH, program(t, "hang"), w.key)
	u := w.updater("lab", func(c *Config) { c.Index.Source, c.Follow = "", file })
	for i := range maxAttempts {
		if _, err := w.take(u); !errors.Is(err, errLate) || errors.As(err, new(unfitError)) != (i == maxAttempts-1) {
			t.Errorf("attempt %d: %v", i, err)
		}
		if got := left(t, w.Stager); got != "islet" {
			t.Errorf("attempt %d leaves %q", i, got)
		}
	}
	if len(u.unfit) != 1 || u.unfit[0].Result != api.UpdateUnfit || u.unfit[0].Why == "" {
		t.Errorf("%+v", u.unfit)
	}
	if _, err := w.take(u); !errors.Is(err, ErrFailed) {
		t.Errorf("it is fetched again: %v", err)
	}
}
