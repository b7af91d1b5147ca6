package page

import (
	"context"
	"sync"
	"time"

	"github.com/islet-edge/islet/metrics/host"
)

// The history has a point for each Interval, and covers one hour.
const (
	Interval = 30 * time.Second
	points   = 120
)

// A Reading contains the resource use of the machine at one point in time.
type Reading struct {
	At         time.Time `json:"at"`
	Cores      float64   `json:"cores"`  // average number of busy cores since the previous reading
	Memory     uint64    `json:"memory"` // bytes in use
	Disk       uint64    `json:"disk"`   // bytes in use
	Received   uint64    `json:"-"`      // bytes since boot, on all external network interfaces
	Sent       uint64    `json:"-"`
	ReceivedBy float64   `json:"in"` // bytes per second since the previous reading
	SentBy     float64   `json:"out"`
}

// Machine reads the machine.
type Machine interface {
	// Read returns the present resource use.
	Read(ctx context.Context) (Reading, error)
	// Links returns the state of network interfaces.
	Links(names []string) []host.NetworkLink
	// ClockSync returns the state of the machine's clock.
	ClockSync() host.ClockSync
}

// history keeps the last readings.
type history struct {
	mu   sync.Mutex
	last []Reading // oldest first
	file historyFile
}

// run adds a reading every Interval until ctx ends.
func (h *history) run(ctx context.Context, m Machine) error {
	tick := time.NewTicker(Interval)
	defer tick.Stop()
	for _, r := range h.file.load(time.Now()) {
		h.put(r)
	}
	for {
		if r, err := m.Read(ctx); err == nil { // a failed reading is left out
			h.file.store(h.add(r))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// add computes the rates of a reading, and adds the reading. It returns the reading with the rates.
func (h *history) add(r Reading) Reading {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.last); n > 0 {
		before := h.last[n-1]
		if took := r.At.Sub(before.At).Seconds(); took > 0 && r.Received >= before.Received && r.Sent >= before.Sent {
			r.ReceivedBy, r.SentBy = float64(r.Received-before.Received)/took, float64(r.Sent-before.Sent)/took
		}
	}
	h.append(r)
	return r
}

// put adds a complete reading.
func (h *history) put(r Reading) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.append(r)
}

func (h *history) append(r Reading) {
	if len(h.last) == points {
		copy(h.last, h.last[1:])
		h.last = h.last[:points-1]
	}
	h.last = append(h.last, r)
}

// list returns a copy of the readings.
func (h *history) list() []Reading {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]Reading{}, h.last...)
}
