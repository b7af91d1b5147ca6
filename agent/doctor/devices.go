package doctor

import "context"

// checkDevices checks the device classes of the configuration.
func (p *checkup) checkDevices(context.Context) {
	if p.Devices == nil {
		return
	}
	found, err := p.Devices()
	if err != nil {
		p.add("devices", Warning, "see that /sys is mounted", "the devices of this machine cannot be listed: %v", err)
		return
	}
	for _, c := range found {
		severity := Warning
		if c.Absent {
			severity = Info
		}
		p.add("devices", severity, c.Advice, "%s", c.What)
	}
	if len(found) == 0 {
		p.add("devices", OK, "", "this machine has a device for each device resource of the configuration")
	}
}
