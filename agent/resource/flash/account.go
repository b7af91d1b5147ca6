package flash

import (
	"slices"
	"time"

	"github.com/islet-edge/islet/internal/clock"
)

// A Sample contains the number of bytes written so far.
type Sample struct {
	Device uint64 `json:"d,omitempty"` // written to the disk by all processes since boot
	Agent  uint64 `json:"a,omitempty"` // written by the agent since its start; includes Images
	Images uint64 `json:"i,omitempty"`
	Shims  uint64 `json:"s,omitempty"` // written by shims and by running and ended processes of pods; includes Logs
	Logs   uint64 `json:"l,omitempty"`
}

// Written contains the number of bytes written in a period.
type Written struct {
	Device   uint64 `json:"d,omitempty"` // written to the disk by all processes
	Database uint64 `json:"b,omitempty"` // written for the database and the agent's small files
	Images   uint64 `json:"i,omitempty"`
	Logs     uint64 `json:"l,omitempty"`
	Pods     uint64 `json:"p,omitempty"`
}

// Stack returns the number of bytes that the node's software and its pods wrote.
func (w Written) Stack() uint64 { return w.Database + w.Images + w.Logs + w.Pods }

func (w Written) addTo(o Written) Written {
	return Written{w.Device + o.Device, w.Database + o.Database, w.Images + o.Images, w.Logs + o.Logs, w.Pods + o.Pods}
}

// shareOf returns the bytes that were written in one part of a period, if w was written evenly over the whole
// period. The parameter length is the length of this part.
func (w Written) shareOf(length, period time.Duration) Written {
	f := func(n uint64) uint64 { return uint64(float64(n) * (float64(length) / float64(period))) }
	return Written{f(w.Device), f(w.Database), f(w.Images), f(w.Logs), f(w.Pods)}
}

func (w Written) subtract(o Written) Written {
	return Written{
		sumDelta(w.Device, o.Device), sumDelta(w.Database, o.Database), sumDelta(w.Images, o.Images),
		sumDelta(w.Logs, o.Logs), sumDelta(w.Pods, o.Pods),
	}
}

// days is the number of days for which figures are kept, including today.
const days = 8

// day is the format of a day's name. The names sort by date.
const day = "2006-01-02"

// maxDay is the longest time that a machine can run on one day, with a tolerance of an hour for changes of the clock.
const maxDay = 25 * time.Hour

// A dayTotal contains the number of bytes written on one day.
type dayTotal struct {
	Day string `json:"n"`
	Up  int64  `json:"u,omitempty"` // for how many seconds the machine has run on this day
	Written
}

// An account contains the number of bytes written on each day. Its methods do no I/O and read no clock.
type account struct {
	Boot  string     `json:"boot"` // boot ID at the time Last
	Run   int64      `json:"run"`  // ID of the agent's run at the time Last
	At    time.Time  `json:"at"`   // time of the last Sample
	Up    int64      `json:"up"`   // uptime at the time Last, in nanoseconds
	Last  Sample     `json:"last"`
	Days  []dayTotal `json:"days"`  // oldest first
	Total Written    `json:"total"` // sum since the account was opened
}

// A moment is the time of a Sample. It also identifies the boot, and the run of the agent, in which the Sample was
// taken.
type moment struct {
	At     time.Time
	Boot   string    // boot ID of the machine
	Booted time.Time // time of the boot
	Run    int64     // identifies the run of the agent
}

// add adds the bytes that were written between the last Sample and the new Sample s, which was taken at m.
func (a *account) add(m moment, s Sample) {
	up := m.At.Sub(m.Booted)
	from := m.At.Add(-max(up-time.Duration(a.Up), 0)) // from does not depend on changes of the clock
	if m.Boot != a.Boot {
		a.Last, from = Sample{}, m.Booted
	}
	if m.Run != a.Run {
		a.Last.Agent, a.Last.Images = 0, 0
	}
	w := Written{
		Device: counterDelta(s.Device, a.Last.Device), Images: counterDelta(s.Images, a.Last.Images),
		Logs: sumDelta(s.Logs, a.Last.Logs),
	}
	w.Database = sumDelta(counterDelta(s.Agent, a.Last.Agent), w.Images)
	w.Pods = sumDelta(sumDelta(s.Shims, a.Last.Shims), w.Logs)
	a.Boot, a.Run, a.At, a.Up, a.Last = m.Boot, m.Run, m.At, int64(up), s
	a.Total = a.Total.addTo(w)
	a.spreadOverDays(w, from.UTC(), m.At.UTC())
}

// counterDelta returns the increase of a counter. If the value is lower than the last one, the counter has restarted
// at 0.
func counterDelta(now, last uint64) uint64 {
	if now < last {
		return now
	}
	return now - last
}

// sumDelta returns the increase of a sum. It returns 0 if the sum has decreased because a summand no longer exists.
func sumDelta(now, last uint64) uint64 { return now - min(now, last) }

// spreadOverDays distributes w evenly over the days of a period.
func (a *account) spreadOverDays(w Written, from, to time.Time) {
	span := to.Sub(from)
	if first := to.AddDate(0, 0, 1-days); span > 0 && from.Before(first) {
		w, from = w.shareOf(to.Sub(first), span), first // days before first are no longer kept
		span = to.Sub(from)
	}
	left := w
	for span > 0 {
		next := from.Truncate(24 * time.Hour).Add(24 * time.Hour)
		if next.After(to) {
			break
		}
		share := w.shareOf(next.Sub(from), span)
		a.addTo(from, share, next.Sub(from))
		left, from = left.subtract(share), next
	}
	a.addTo(to, left, max(to.Sub(from), 0))
	a.pruneDays(to)
}

// pruneDays removes old days. It keeps days in the near future. They may have been recorded before a reboot, and the
// clock may be behind until it is set after the reboot. Days further in the future are removed as wrong. Bytes that were
// recorded before the clock was set are added to today.
func (a *account) pruneDays(now time.Time) {
	today, latest := now.Format(day), now.AddDate(0, 0, days).Format(day)
	if first := clock.EarliestTime().Format(day); today >= first {
		var before Written
		a.Days = slices.DeleteFunc(a.Days, func(d dayTotal) bool {
			if d.Day < first {
				before = before.addTo(d.Written)
			}
			return d.Day < first || d.Day > latest
		})
		a.addTo(now, before, 0)
	}
	for len(a.Days) > days {
		oldest := 0
		if a.Days[0].Day == today {
			oldest = 1
		}
		a.Days = slices.Delete(a.Days, oldest, oldest+1)
	}
}

// addTo adds the bytes that were written during a time to the day of t. If the machine cannot have run that long on one day, its clock
// starts on the same day at each boot and is never set. A new day then begins after 25 hours of running time, under the same name.
func (a *account) addTo(t time.Time, w Written, during time.Duration) {
	name := t.Format(day)
	i, found := slices.BinarySearchFunc(a.Days, name, func(d dayTotal, name string) int {
		switch {
		case d.Day < name:
			return -1
		case d.Day > name:
			return 1
		}
		return 0
	})
	if !found {
		a.Days = slices.Insert(a.Days, i, dayTotal{Day: name})
	}
	d := &a.Days[i]
	up := d.Up + int64(during/time.Second)
	if up > int64(maxDay/time.Second) {
		*d = dayTotal{Day: name}
		up = int64(during / time.Second)
	}
	d.Up, d.Written = up, d.Written.addTo(w)
}

// writtenOn returns the bytes written on the day of t.
func (a *account) writtenOn(t time.Time) Written {
	for _, d := range a.Days {
		if d.Day == t.UTC().Format(day) {
			return d.Written
		}
	}
	return Written{}
}
