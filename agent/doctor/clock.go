package doctor

import (
	"context"
	"time"

	"github.com/islet-edge/islet/internal/clock"
)

// checkClock reports a clock that is certainly wrong. Certificates and leases need a correct clock. Pods start even if the
// clock is wrong.
func (p *checkup) checkClock(context.Context) {
	const sync = "set it, and enable time synchronisation: timedatectl set-ntp true"
	now, built := p.sys.Now(), p.BuildTime
	if !clock.IsSet(built) {
		built = clock.EarliestTime()
	}
	switch {
	case now.Year() < 1971:
		p.add("clock", Warning, sync, "the clock is at %s: it was never set", now.UTC().Format(time.DateOnly))
	case now.Before(built.Add(-24 * time.Hour)):
		p.add("clock", Warning, sync, "the clock is at %s, before this program was built (%s)", now.UTC().Format(time.DateOnly),
			built.UTC().Format(time.DateOnly))
	case now.After(built.AddDate(20, 0, 0)):
		p.add("clock", Warning, sync, "the clock is at %s, decades after this program was built", now.UTC().Format(time.DateOnly))
	default:
		p.add("clock", OK, "", "the clock is at %s", now.UTC().Format(time.DateTime))
	}
	if !p.exists("sys/class/rtc/rtc0") {
		p.add("clock-rtc", Info, "nothing: pods start anyway; with a clock module or fake-hwclock the times in early logs are right",
			"there is no real-time clock: after a power cut the time is wrong until the network is up")
	}
}
