package describe

import (
	"github.com/islet-edge/islet/edge/link"
	"github.com/islet-edge/islet/internal/api"
)

// A Clock converts the state of a link's clock to the type of the local API.
type Clock struct{ *link.Link }

// Clock returns the state of the clock.
func (c Clock) Clock() api.Clock { return api.Clock(c.Times()) }
