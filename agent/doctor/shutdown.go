package doctor

import "context"

// checkShutdown checks that the machine waits for its pods when it shuts down.
func (p *checkup) checkShutdown(ctx context.Context) {
	if p.ShutdownNeed == 0 || p.ShutdownDelay == nil {
		return
	}
	delay, err := p.ShutdownDelay(ctx)
	switch {
	case err != nil && p.exists("/run/openrc"):
		p.add("shutdown", OK, "", "OpenRC stops islet's service, which ends the pods, before the machine shuts down")
	case err != nil:
		p.add("shutdown", Warning, "install dbus and systemd-logind or elogind, or run islet shutdown before the machine shuts down",
			"pods may take %v to end, but islet is not notified when the machine shuts down: %v", p.ShutdownNeed, err)
	case delay < p.ShutdownNeed:
		p.add("shutdown", Warning, "start islet, which raises the limit, or set InhibitDelayMaxSec in a file of "+
			"/etc/systemd/logind.conf.d that sorts after 99-islet.conf",
			"pods may take %v to end when the machine shuts down, but logind waits only %v", p.ShutdownNeed, delay)
	default:
		p.add("shutdown", OK, "", "logind waits up to %v for the pods when the machine shuts down", delay)
	}
}
