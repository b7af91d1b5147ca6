package health

import (
	"context"
	"fmt"
	"time"

	"github.com/islet-edge/islet/agent/kubelet/server"
)

// stuck is how long the agent may be at one thing that it does in no time.
const stuck = 2 * time.Minute

// Config is what New needs.
type Config struct {
	Overdue func() time.Duration // how long a pod has been waiting for its worker
	Busy    func() time.Duration // how long the container runtime has not answered
	Network func() error         // why pods get no network
	Off     func() string        // why no pods are taken any more; empty: they are
}

// Health looks when it is asked.
type Health struct{ c Config }

// New looks at nothing.
func New(c Config) Health { return Health{c} }

// Checks are what healthz looks at.
func (h Health) Checks() []server.Check {
	return []server.Check{{Name: "syncloop", Check: func(context.Context) error {
		if d := h.c.Overdue(); d > stuck {
			return fmt.Errorf("a pod has been waiting for its worker for %s", d.Round(time.Second))
		}
		if d := h.c.Busy(); d > stuck {
			return fmt.Errorf("the container runtime has not answered for %s", d.Round(time.Second))
		}
		return nil
	}}}
}

// NotReady is why pods cannot run here, as a kubelet words it.
func (h Health) NotReady(ctx context.Context) (why []string) {
	for _, c := range h.Checks() {
		if err := c.Check(ctx); err != nil {
			why = append(why, err.Error())
		}
	}
	if err := h.c.Network(); err != nil {
		why = append(why, err.Error())
	}
	if off := h.c.Off(); off != "" {
		why = append(why, off)
	}
	return why
}
