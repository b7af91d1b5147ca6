package describe

import (
	"github.com/islet-edge/islet/edge/link"
	"github.com/islet-edge/islet/internal/api"
)

// A Clock is the link's as the local API shows it.
type Clock struct{ *link.Link }

// Clock is what is known of the time.
func (c Clock) Clock() api.Clock { return api.Clock(c.Times()) }
