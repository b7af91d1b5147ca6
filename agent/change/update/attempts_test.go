package update

import (
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/islet-edge/islet/internal/api"
)

// TestAttempts checks that the node waits for a day after it has fetched a followed program three times without a trial. This is tested
// with a program whose self-test has no result, and with one that is given up before its trial. Neither is reported as unfit. An operator's
// request does not wait.
func TestAttempts(t *testing.T) {
	for _, how := range []string{"full", "good"} {
		synctest.Test(t, func(t *testing.T) {
			w := newIndexWorld(t)
			file := archive(t, w.dir, "islet.tar.gz", "0.2.0", runtime.GOARCH, program(t, how), w.key)
			u := w.updater("lab", func(c *Config) { c.Index.Source, c.Follow = "", file })
			take := func() bool {
				t.Helper()
				_, err := w.take(u)
				if (err == nil) != (how == "good" && len(w.offered) > 0) || len(w.record.Refused) > 0 {
					t.Errorf("%s: %v", how, err)
				}
				return len(w.offered) > 0 || errors.As(err, new(untriedError))
			}
			for i := range 5 {
				if fetched := take(); fetched != (i < maxAttempts) {
					t.Errorf("%s, attempt %d: fetched: %v", how, i, fetched)
				}
				time.Sleep(time.Hour) // in the bubble's time
			}
			if s := u.Status(); s.Problem == "" || len(w.record.Refused) > 0 {
				t.Errorf("%s: %+v, %+v", how, s, w.record)
			}
			if _, err := u.Update(t.Context(), file, api.UpdateOptions{}, nil); (err == nil) != (how == "good") ||
				err != nil && !errors.As(err, new(untriedError)) {
				t.Errorf("%s: an operator's request: %v", how, err)
			}
			time.Sleep(attemptWait - 3*time.Hour) // in the bubble's time
			if !take() || take() {
				t.Errorf("%s: not fetched once after a day", how)
			}
			archive(t, w.dir, "islet.tar.gz", "0.2.1", runtime.GOARCH, program(t, "full"), w.key)
			if _, err := w.take(u); !errors.As(err, new(untriedError)) {
				t.Errorf("another version waits too: %v", err)
			}
		})
	}
}
