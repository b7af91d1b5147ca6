package describe

import (
	"github.com/islet-edge/islet/edge/link"
	"github.com/islet-edge/islet/internal/api"
)

// A Clock returns the clock of a link in the type of the local API.
type Clock struct{ *link.Link }

// Clock returns the state of the clock.
func (c Clock) Clock() api.Clock { return api.Clock(c.Times()) }
