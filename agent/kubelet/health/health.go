package health

import (
	"context"
	"fmt"
	"time"

	"github.com/islet-edge/islet/agent/kubelet/server"
)

// stuck is the duration after which a normally instant operation counts as hanging.
const stuck = 2 * time.Minute

// Config configures New.
type Config struct {
	Overdue func() time.Duration // longest wait of a pod for its worker
	Busy    func() time.Duration // how long a call to the container runtime has not returned
	Network func() error         // why the pod network is not ready
	Off     func() string        // why no pods are started any more; empty: they are
}

// Health evaluates its checks on request.
type Health struct{ c Config }

// New returns a Health. It checks nothing.
func New(c Config) Health { return Health{c} }

// Checks returns the checks of healthz.
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

// NotReady returns why pods cannot run here, in a kubelet's words.
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
