package health

import (
	"context"
	"fmt"
	"time"

	"github.com/islet-edge/islet/agent/kubelet/server/zpages"
)

// hangTime is the duration after which an operation counts as hanging. Normally an operation takes almost no time.
const hangTime = 2 * time.Minute

// Config configures a Health.
type Config struct {
	StartDelay    func() time.Duration // returns how long a pod has been waiting for its worker
	CallDuration  func() time.Duration // returns how long a call to the container runtime has been in progress
	Network       func() error         // returns why the pod network is not ready
	StartsBlocked func() string        // returns why no more pods are started; empty if pods are started
}

// Health checks the node when a check is called. Nothing runs in the background.
type Health struct{ c Config }

// New returns a Health.
func New(c Config) Health { return Health{c} }

// Checks returns the checks for the path healthz.
func (h Health) Checks() []zpages.Check {
	return []zpages.Check{{Name: "syncloop", Check: func(context.Context) error {
		if d := h.c.StartDelay(); d > hangTime {
			return fmt.Errorf("a pod has been waiting for its worker for %s", d.Round(time.Second))
		}
		if d := h.c.CallDuration(); d > hangTime {
			return fmt.Errorf("the container runtime has not answered for %s", d.Round(time.Second))
		}
		return nil
	}}}
}
