package poll

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// All calls of time.Sleep in this file are in synctest bubbles, whose clock advances at once.

// TestPace checks the times of the rounds: the first one after its delay, at the interval with a jitter while they succeed, soon and then
// at growing intervals after failures, and not before the time that the server has requested.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const interval = 20 * time.Minute
		start := time.Now()
		pace := NewPace(interval, time.Minute, interval)
		var at []time.Duration
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			Run(ctx, 3*time.Second, func(context.Context) time.Duration {
				at = append(at, time.Since(start))
				switch n := len(at); {
				case n <= 3:
					return pace.Next(true, 0)
				case n == 4:
					return pace.Next(false, 2*time.Hour)
				}
				return pace.Next(false, 0)
			})
		}()
		time.Sleep(12 * time.Hour)
		cancel()
		<-done
		if at[0] != 3*time.Second {
			t.Errorf("the first round is after %s", at[0])
		}
		for i := 1; i < len(at); i++ {
			gap := at[i] - at[i-1]
			least, most := time.Duration(0), interval
			switch {
			case i <= 3:
				least = interval * 9 / 10
			case i == 4:
				least, most = 2*time.Hour, 2*time.Hour+interval
			}
			if gap < least || gap > most {
				t.Errorf("round %d is %s after the last one", i, gap)
			}
		}
		if len(at) < 20 {
			t.Errorf("only %d rounds", len(at))
		}
	})
}

// TestValidators checks which validators a request has.
func TestValidators(t *testing.T) {
	for name, c := range map[string]struct{ tag, modified, want string }{
		"both":      {`"1"`, "Thu, 01 Jan 2026 00:01:00 GMT", `"1" Thu, 01 Jan 2026 00:01:00 GMT`},
		"weak":      {`W/"a-1"`, "", `W/"a-1" `},
		"none":      {"", "", " "},
		"long":      {`"` + strings.Repeat("x", maxValidator) + `"`, "y", " "},
		"any":       {"*", "9999", " "},
		"two":       {`"1", "2"`, "", " "},
		"no quotes": {"1", "", " "},
		"later":     {"", "Fri, 02 Jan 2026 00:00:01 GMT", " "},
	} {
		from, to := http.Header{}, http.Header{}
		from.Set("ETag", c.tag)
		from.Set("Last-Modified", c.modified)
		from.Set("Date", "Fri, 02 Jan 2026 00:00:00 GMT")
		v := ValidatorsOf(from)
		v.AddTo(to)
		if got := to.Get("If-None-Match") + " " + to.Get("If-Modified-Since"); got != c.want || v.IsZero() != (c.want == " ") {
			t.Errorf("%s: %q", name, got)
		}
	}
}
