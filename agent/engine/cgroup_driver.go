package engine

import (
	"context"
	"fmt"

	"github.com/islet-edge/islet/runtime/remote"
)

// checkDriver returns errDriverChanged if the runtime reports another cgroup driver than the agent's.
// The agent had to assume a driver if the runtime did not answer when the agent started.
func (c *Containers) checkDriver(ctx context.Context) error {
	d, isRemote := c.backend.(*remoteBackend)
	if !isRemote {
		return nil
	}
	driver, err := d.CgroupDriver(ctx)
	if err == nil && driver != "" && driver != c.CgroupDriver {
		return fmt.Errorf("%w (%s, not %s)", errDriverChanged, driver, c.CgroupDriver)
	}
	return err
}

// cgroupDriver returns the cgroup driver of a remote runtime, as the runtime reports it. If the runtime does not
// answer, the result is the driver that it last reported. If the runtime answers but reports no driver, the result is
// the configured driver, as KEP-4033 requires.
func (r *record) cgroupDriver(a Config, rt *remote.Runtime) string {
	ctx, stop := context.WithTimeout(context.Background(), answerTimeout)
	defer stop()
	said, err := rt.CgroupDriver(ctx)
	switch {
	case err == nil:
		r.Driver = said
	case rt.IsResponding():
		a.Log.Warn("the container runtime does not report its cgroup driver", "error", err)
	}
	if r.Driver == "" {
		return a.Kubelet.CgroupDriver
	}
	if r.Driver != a.Kubelet.CgroupDriver {
		a.Log.Info("using the cgroup driver that the container runtime reports instead of cgroupDriver",
			"driver", r.Driver, "cgroupDriver", a.Kubelet.CgroupDriver)
	}
	return r.Driver
}
