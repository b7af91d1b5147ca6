package usage

import (
	"context"
	"os"
	"path"
	"strings"
	"time"

	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/metrics/cgroup"
	"github.com/islet-edge/islet/metrics/disk"
	"github.com/islet-edge/islet/metrics/exposition"
	"github.com/islet-edge/islet/metrics/host"
	"github.com/islet-edge/islet/metrics/process"
	"github.com/islet-edge/islet/metrics/sample"
)

// Machine returns the constant properties of the machine. Unknown properties are zero.
func (u *Usage) Machine(ctx context.Context) exposition.Machine {
	if u.c.Host == nil {
		return exposition.Machine{}
	}
	id, err := u.c.Host.Identity(ctx)
	if err != nil {
		return exposition.Machine{}
	}
	m := exposition.Machine{ID: id.MachineID, SystemUUID: id.SystemUUID, BootID: id.BootID, Kernel: id.Kernel, OS: id.OSImage,
		Cores: id.CPUs, Memory: id.Memory, Swap: id.Swap}
	m.Physical, m.Sockets = u.topology()
	return m
}

// Board returns the current values of the sensors, and the names of the external network interfaces.
func (u *Usage) Board() api.Board {
	if u.c.Host == nil {
		return api.Board{}
	}
	b := u.c.Host.Board()
	out := api.Board{Power: b.Power.Now, PowerSinceBoot: b.Power.Since, MHz: b.MHz, MaxMHz: b.MaxMHz}
	for _, t := range b.Temperatures {
		out.Temperatures = append(out.Temperatures, api.Temperature{Name: t.Name, Celsius: t.Celsius})
	}
	for _, i := range process.ExternalInterfaces("/sys", process.Reader{}.Network(0)) {
		out.Links = append(out.Links, i.Name)
	}
	return out
}

// maxAge is the maximum age of figures that are reused. Several pages are scraped at about the same time.
const maxAge = time.Second

// NewForMachine is like New, but sets the fields that measure this machine. The parameter pods is the path of the
// cgroup of all pods, and the parameter misc is the configured systemCgroups or "". The parameter trees is the
// minimum time between two measurements of the same directory. If it is negative, directories are not measured.
func NewForMachine(c Config, cgroups *cgroup.CachedReader, pods, misc string, trees time.Duration) *Usage {
	c.Host = host.New(host.Config{})
	c.System = map[string]string{stats.SystemContainerPods: pods}
	s := sample.Config{Cgroups: cgroups, Pods: pods, MaxAge: maxAge}
	if own := ownCgroup(cgroups.Unified()); own != "/" && own != "" {
		c.System[stats.SystemContainerKubelet], c.System[stats.SystemContainerRuntime] = own, own
		s.Others, s.Self = []string{own}, own
	}
	if misc = path.Join("/", misc); misc != "/" {
		c.System[stats.SystemContainerMisc] = misc
		if misc != s.Self && misc != pods {
			s.Others = append(s.Others, misc)
		}
	}
	c.Sampler = sample.New(s)
	if trees >= 0 {
		c.Trees = &disk.Trees{Age: trees}
	}
	return New(c)
}

// ownCgroup returns the cgroup of this process, to which the runtime belongs as well. It returns "" if the cgroup is
// unknown.
func ownCgroup(unified bool) string {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) { // 4:memory:/system.slice/islet.service, 0::/...
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) == 3 && (unified && part[1] == "" || !unified && part[1] == "memory") {
			return part[2]
		}
	}
	return ""
}
