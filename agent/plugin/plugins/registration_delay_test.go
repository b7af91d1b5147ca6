package plugins

import (
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// TestCalm checks that a plugin that registers again and again must wait longer each time. Other plugins do not wait. After some time
// without registrations, the plugin's next registration is not delayed. The number of stored names is limited.
func TestCalm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := New(Config{Root: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
		must(t, err)
		registered := 0
		for began := time.Now(); time.Since(began) < 10*time.Minute; registered++ {
			wait := r.registrationDelay("flaps")
			if registered == 0 && wait != 0 || registered == 1 && wait > firstCalm || wait > lastCalm {
				t.Errorf("registration %d waits %s", registered, wait)
			}
			time.Sleep(wait + time.Millisecond)
		}
		if registered < 20 || registered > 100 {
			t.Errorf("registered %d times in ten minutes", registered)
		}
		if wait := r.registrationDelay("other"); wait != 0 {
			t.Errorf("another plugin waits %s", wait)
		}
		time.Sleep(delayReset + time.Second)
		if wait := r.registrationDelay("flaps"); wait != 0 || len(r.recentRegistrations) != 1 {
			t.Errorf("after some time the plugin waits %s; %d names are stored", wait, len(r.recentRegistrations))
		}
		for i := range 10 * maxSockets {
			r.registrationDelay(fmt.Sprint(i))
		}
		if len(r.recentRegistrations) != maxSockets {
			t.Errorf("%d names are stored", len(r.recentRegistrations))
		}
	})
}
