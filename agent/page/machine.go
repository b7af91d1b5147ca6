package page

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/islet-edge/islet/metrics/host"
	"github.com/islet-edge/islet/metrics/process"
)

// Measured is this machine.
type Measured struct {
	Disk string // a directory of the file system that is shown
	host *host.Host
}

// OfMachine prepares it; nothing is read yet.
func OfMachine(disk string) *Measured { return &Measured{Disk: disk, host: host.New(host.Config{})} }

// Read implements Machine.
func (m *Measured) Read(ctx context.Context) (Reading, error) {
	u, err := m.host.Usage(ctx)
	if err != nil {
		return Reading{}, err
	}
	r := Reading{At: time.Now(), Cores: u.CPU.Cores, Memory: u.Memory.Used}
	if d, err := m.host.Disk(ctx, m.Disk); err == nil {
		r.Disk = d.Used
	}
	for _, i := range links("/sys", process.Reader{}.Network(0)) {
		r.Received, r.Sent = r.Received+i.Received, r.Sent+i.Sent
	}
	return r, nil
}

// links are the interfaces that lead out of the machine: those of hardware. Where there are
// none, as in a container, all but those of pods' bridges count.
func links(sys string, all []process.Interface) (out []process.Interface) {
	for _, i := range all {
		if _, err := os.Stat(filepath.Join(sys, "class/net", i.Name, "device")); err == nil {
			out = append(out, i)
		}
	}
	if len(out) > 0 {
		return out
	}
	for _, i := range all {
		dir := filepath.Join(sys, "class/net", i.Name)
		if !exists(dir, "bridge") && !exists(dir, "master") && !exists(dir, "brport") {
			out = append(out, i)
		}
	}
	return out
}

func exists(dir, name string) bool {
	_, err := os.Lstat(filepath.Join(dir, name))
	return err == nil
}
