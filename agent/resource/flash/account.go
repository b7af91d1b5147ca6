package flash

import (
	"slices"
	"time"

	"github.com/islet-edge/islet/internal/clock"
)

// A Sample is what was written so far, in bytes.
type Sample struct {
	Device uint64 `json:"d,omitempty"` // to the disk, by anybody, since boot
	Agent  uint64 `json:"a,omitempty"` // by the agent since it started; Images is a part of it
	Images uint64 `json:"i,omitempty"`
	Shims  uint64 `json:"s,omitempty"` // by shims, processes of pods, and those that ended; Logs is a part of it
	Logs   uint64 `json:"l,omitempty"`
}

// Written is what was written within a time, in bytes.
type Written struct {
	Device   uint64 `json:"d,omitempty"` // by anybody
	Database uint64 `json:"b,omitempty"` // and small files of the agent
	Images   uint64 `json:"i,omitempty"`
	Logs     uint64 `json:"l,omitempty"`
	Pods     uint64 `json:"p,omitempty"`
}

// Stack is what the node's software and its pods wrote.
func (w Written) Stack() uint64 { return w.Database + w.Images + w.Logs + w.Pods }

func (w Written) plus(o Written) Written {
	return Written{w.Device + o.Device, w.Database + o.Database, w.Images + o.Images, w.Logs + o.Logs, w.Pods + o.Pods}
}

// part is a share of it.
func (w Written) part(of, in time.Duration) Written {
	f := func(n uint64) uint64 { return uint64(float64(n) * (float64(of) / float64(in))) }
	return Written{f(w.Device), f(w.Database), f(w.Images), f(w.Logs), f(w.Pods)}
}

func (w Written) minus(o Written) Written {
	return Written{since(w.Device, o.Device), since(w.Database, o.Database), since(w.Images, o.Images), since(w.Logs, o.Logs), since(w.Pods, o.Pods)}
}

// days is how many days are known, with today.
const days = 8

// day is the form of a day's name. It sorts by age.
const day = "2006-01-02"

// A dayOf is what was written on a day.
type dayOf struct {
	Day string `json:"n"`
	Written
}

// account adds up by day. It is pure: no I/O, no clock.
type account struct {
	Boot  string    `json:"boot"` // that Last is of
	Run   int64     `json:"run"`  // of the agent that Last is of
	At    time.Time `json:"at"`   // of Last
	Up    int64     `json:"up"`   // nanoseconds since the boot, at Last
	Last  Sample    `json:"last"`
	Days  []dayOf   `json:"days"`  // the oldest first
	Total Written   `json:"total"` // since the account was opened
}

// A moment is when and in which lives a Sample was taken.
type moment struct {
	At     time.Time
	Boot   string    // of the machine
	Booted time.Time // when
	Run    int64     // of the agent
}

// add takes what was written since the last Sample.
func (a *account) add(m moment, s Sample) {
	up := m.At.Sub(m.Booted)
	from := m.At.Add(-max(up-time.Duration(a.Up), 0)) // whatever the clock said then
	if m.Boot != a.Boot {
		a.Last, from = Sample{}, m.Booted
	}
	if m.Run != a.Run {
		a.Last.Agent, a.Last.Images = 0, 0
	}
	w := Written{Device: restarted(s.Device, a.Last.Device), Images: restarted(s.Images, a.Last.Images), Logs: since(s.Logs, a.Last.Logs)}
	w.Database = since(restarted(s.Agent, a.Last.Agent), w.Images)
	w.Pods = since(since(s.Shims, a.Last.Shims), w.Logs)
	a.Boot, a.Run, a.At, a.Up, a.Last = m.Boot, m.Run, m.At, int64(up), s
	a.Total = a.Total.plus(w)
	a.spread(w, from.UTC(), m.At.UTC())
}

// restarted is what was counted since; a counter that went back began anew.
func restarted(now, last uint64) uint64 {
	if now < last {
		return now
	}
	return now - last
}

// since is what was counted since, of a sum that gets smaller when a part of it ends.
func since(now, last uint64) uint64 { return now - min(now, last) }

// spread gives each day its share.
func (a *account) spread(w Written, from, to time.Time) {
	span := to.Sub(from)
	if first := to.AddDate(0, 0, 1-days); span > 0 && from.Before(first) {
		w, from = w.part(to.Sub(first), span), first // the rest is of days that nobody asks for
		span = to.Sub(from)
	}
	left := w
	for span > 0 {
		next := from.Truncate(24 * time.Hour).Add(24 * time.Hour)
		if next.After(to) {
			break
		}
		share := w.part(next.Sub(from), span)
		a.at(from, share)
		left, from = left.minus(share), next
	}
	a.at(to, left)
	a.settle(to)
}

// settle leaves the days that count. Those later than now are known from before a boot, and
// may come again once the clock is set, unless they are so late that it was wrong then. What
// was written before the clock was set is of the day on which it is.
func (a *account) settle(now time.Time) {
	today, latest := now.Format(day), now.AddDate(0, 0, days).Format(day)
	if first := clock.First().Format(day); today >= first {
		var before Written
		a.Days = slices.DeleteFunc(a.Days, func(d dayOf) bool {
			if d.Day < first {
				before = before.plus(d.Written)
			}
			return d.Day < first || d.Day > latest
		})
		a.at(now, before)
	}
	for len(a.Days) > days {
		oldest := 0
		if a.Days[0].Day == today {
			oldest = 1
		}
		a.Days = slices.Delete(a.Days, oldest, oldest+1)
	}
}

// at adds to a day.
func (a *account) at(t time.Time, w Written) {
	name := t.Format(day)
	i, found := slices.BinarySearchFunc(a.Days, name, func(d dayOf, name string) int {
		switch {
		case d.Day < name:
			return -1
		case d.Day > name:
			return 1
		}
		return 0
	})
	if !found {
		a.Days = slices.Insert(a.Days, i, dayOf{Day: name})
	}
	a.Days[i].Written = a.Days[i].Written.plus(w)
}

// on is what was written on the day of t.
func (a *account) on(t time.Time) Written {
	for _, d := range a.Days {
		if d.Day == t.UTC().Format(day) {
			return d.Written
		}
	}
	return Written{}
}
