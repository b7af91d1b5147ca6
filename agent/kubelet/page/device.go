package page

import (
	"context"
	"net/url"

	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/clock"
	"github.com/islet-edge/islet/metrics/host"
)

// A device contains facts about the machine: its sensors, links, addresses and clock. The facts are read only when a request
// needs them.
type device struct {
	Board     api.Board          `json:"board"`
	Addresses []string           `json:"addresses"`
	Links     []host.NetworkLink `json:"links"`
	Cluster   *api.Cluster       `json:"cluster"` // nil if the node stands alone
	Network   api.Network        `json:"network"`
	Clock     string             `json:"clock"`    // what is known about the clock, such as "not synchronized"
	ClockBad  bool               `json:"clockBad"` // the clock is certainly wrong
}

// hot is the temperature in degrees Celsius from which a sensor is marked. Boards reduce their CPU frequency at
// about this temperature.
const hot = 80

func (p *Page) device(ctx context.Context, st *api.Status) device {
	d := device{Addresses: append([]string{}, st.Addresses...), Cluster: st.Cluster, Network: st.Network}
	if p.get(ctx, api.PathBoard, &d.Board) == nil {
		d.Links = p.c.Machine.Links(d.Board.Links[:min(len(d.Board.Links), maxParts)])
	}
	var c api.Clock
	known := p.get(ctx, api.PathClock, &c) == nil // false if the agent does not use the cluster's time
	switch {
	case !clock.IsSet(st.Now):
		d.Clock, d.ClockBad = "was never set", true
	case known && c.Refused != "":
		d.Clock, d.ClockBad = "differs from the control plane's: "+c.Refused, true
	default:
		d.Clock = string(p.c.Machine.ClockSync()) // a device without a network has no time service
	}
	return d
}

// details returns the facts about a pod that its object does not contain. If the facts cannot be read, the
// result is empty.
func (p *Page) details(ctx context.Context, uid string) (d api.Details) {
	if err := p.get(ctx, api.PathDetails+"/"+url.PathEscape(uid), &d); err != nil {
		d = api.Details{Problems: []string{err.Error()}}
	}
	d.Hooks = nil // their output may contain secrets
	return d
}
