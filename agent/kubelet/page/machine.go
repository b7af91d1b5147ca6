package page

import (
	"context"
	"time"

	"github.com/islet-edge/islet/metrics/host"
	"github.com/islet-edge/islet/metrics/process"
)

// HostMachine implements Machine for this host.
type HostMachine struct {
	Disk string // a directory on the measured file system
	host *host.Host
}

// OfMachine returns a HostMachine for the file system that contains the directory disk.
func OfMachine(disk string) *HostMachine {
	return &HostMachine{Disk: disk, host: host.New(host.Config{})}
}

// Read implements Machine.
func (m *HostMachine) Read(ctx context.Context) (Reading, error) {
	u, err := m.host.Usage(ctx)
	if err != nil {
		return Reading{}, err
	}
	r := Reading{At: time.Now(), Cores: u.CPU.Cores, Memory: u.Memory.Used}
	if d, err := m.host.Disk(ctx, m.Disk); err == nil {
		r.Disk = d.Used
	}
	for _, i := range process.ExternalInterfaces("/sys", process.Reader{}.Network(0)) {
		r.Received, r.Sent = r.Received+i.Received, r.Sent+i.Sent
	}
	return r, nil
}

// Links implements Machine.
func (m *HostMachine) Links(names []string) []host.NetworkLink { return m.host.NetworkLinks(names) }

// ClockSync implements Machine.
func (m *HostMachine) ClockSync() host.ClockSync { return host.ReadClockSync() }
