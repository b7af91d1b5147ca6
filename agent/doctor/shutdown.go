package doctor

import "context"

// shutdown looks whether the machine waits for its pods when it goes off.
func (p *patient) shutdown(ctx context.Context) {
	if p.ShutdownNeed == 0 || p.ShutdownDelay == nil {
		return
	}
	delay, err := p.ShutdownDelay(ctx)
	switch {
	case err != nil && p.exists("/run/openrc"):
		p.add("shutdown", OK, "", "OpenRC has the pods end before the machine goes off, by the service of islet")
	case err != nil:
		p.add("shutdown", Warning, "install dbus and systemd-logind or elogind, or have islet shutdown called before the machine goes off",
			"pods may take %v to end, but nothing tells islet when the machine goes off: %v", p.ShutdownNeed, err)
	case delay < p.ShutdownNeed:
		p.add("shutdown", Warning, "start islet, which raises it, or set InhibitDelayMaxSec in a file of /etc/systemd/logind.conf.d "+
			"that sorts after 99-islet.conf",
			"pods may take %v to end when the machine goes off, but logind waits only %v", p.ShutdownNeed, delay)
	default:
		p.add("shutdown", OK, "", "logind waits up to %v for the pods when the machine goes off", delay)
	}
}
