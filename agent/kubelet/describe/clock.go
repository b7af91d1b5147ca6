package describe

import (
	"github.com/islet-edge/islet/edge/link"
	"github.com/islet-edge/islet/internal/api"
)

// A Clock is the link's as the local API shows it.
type Clock struct{ *link.Link }

// Clock returns the state of the clock.
func (c Clock) Clock() api.Clock { return api.Clock(c.Times()) }
