package exposition

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/islet-edge/islet/metrics/disk"
	"github.com/islet-edge/islet/metrics/process"
	"github.com/islet-edge/islet/metrics/sample"
)

// A Subject is a cgroup with the labels of its metrics. The labels are the same as in the metrics that cAdvisor serves in a kubelet.
type Subject struct {
	*sample.Group
	ID                               string // value of the label "id"; empty means the path of the cgroup
	Container, Pod, Namespace, Image string
	Name                             string    // container ID
	Sandbox                          string    // value of the label "name" in the Subject's network metrics; empty means Name
	Started                          time.Time // zero means the creation time of the cgroup
	Disks                            []Disk
	Devices                          []disk.Device // counters of the machine's devices; set only for the Root

	stamp   string
	network int // index in page.blocks of the labels for the network metrics
}

// A Disk contains how much of one file system a Subject uses.
type Disk struct {
	Device                          string
	Used, Limit, Inodes, InodesFree uint64
}

// A Machine contains the properties of the machine that do not change.
type Machine struct {
	ID, SystemUUID, BootID   string
	Kernel, OS               string
	Cores, Physical, Sockets int
	Memory, Swap             uint64 // bytes
}

// ServeContainers serves /metrics/cadvisor. If the measurement has failed, the metric container_scrape_error is 1, as in cAdvisor.
func ServeContainers(w http.ResponseWriter, r *http.Request, m Machine, all []Subject, err error) {
	sendPage(w, r, func(p *page) {
		writeContainers(p, m, all, err, func(number string) string { return disk.DeviceFile("/sys", number) })
	})
}

func writeContainers(p *page, m Machine, all []Subject, err error, deviceName func(string) string) {
	names := map[string]string{}
	name := func(number string) string {
		n, ok := names[number]
		if !ok {
			n = deviceName(number)
			names[number] = n
		}
		return n
	}
	label := func(to []byte, s *Subject, name string) []byte {
		return appendLabels(to, "container", s.Container, "id", cmp.Or(s.ID, s.Path),
			"image", s.Image, "name", name, "namespace", s.Namespace, "pod", s.Pod)
	}
	blocks, next := setNetworkBlocks(all), 0
	p.blocks = slices.Grow(p.blocks[:0], blocks)[:blocks]
	for i := range p.blocks {
		to := p.blocks[i][:0]
		if i < len(all) {
			all[i].stamp = p.cachedTimestamp(all[i].At)
			p.blocks[i] = label(to, &all[i], all[i].Name)
		} else {
			for all[next].network != i {
				next++
			}
			p.blocks[i] = label(to, &all[next], all[next].Sandbox)
		}
	}
	e := emitter{page: p, device: name}
	for _, f := range containerFamilies {
		p.beginFamily(f.name, f.help, f.kind)
		for i := range all {
			e.s, e.b, e.net, p.stamp = &all[i], p.blocks[i], p.blocks[all[i].network], ""
			if !f.spec {
				p.stamp = all[i].stamp
			}
			f.write(&e)
		}
		p.endFamily()
	}
	p.stamp = ""
	failed := 0.0
	if err != nil {
		failed = 1
	}
	p.beginFamily("container_scrape_error", "1 if the figures of containers could not be read", Gauge)
	p.writeLine(failed, "")
	p.endFamily()
	writeMachine(p, m)
}

// setNetworkBlocks selects the labels for the network metrics of each Subject. These are normally the Subject's own labels. If the label
// "name" has another value in the network metrics, an additional block contains the labels of the network metrics. setNetworkBlocks returns
// the number of blocks.
func setNetworkBlocks(all []Subject) (n int) {
	n = len(all)
	for i := range all {
		all[i].network = i
		if s := &all[i]; s.Sandbox != "" && s.Sandbox != s.Name && len(s.Network) > 0 {
			s.network, n = n, n+1
		}
	}
	return n
}

func writeMachine(p *page, m Machine) {
	who := formatLabels("boot_id", m.BootID, "machine_id", m.ID, "system_uuid", m.SystemUUID)
	for _, f := range machineFamilies {
		if v := f.read(m); v > 0 || f.zero {
			p.beginFamily(f.name, f.help, Gauge)
			p.writeLine(v, who)
			p.endFamily()
		}
	}
	p.beginFamily("machine_scrape_error", "1 if the figures of the machine could not be read", Gauge)
	p.writeLine(0, "")
	p.endFamily()
	p.beginFamily("cadvisor_version_info", "kernel and operating system, as labels; there is no cAdvisor and no Docker", Gauge)
	p.writeLine(1, formatLabels("cadvisorRevision", "", "cadvisorVersion", "", "dockerVersion", "",
		"kernelVersion", m.Kernel, "osVersion", m.OS))
	p.endFamily()
}

var machineFamilies = []struct {
	name, help string
	read       func(Machine) float64
	zero       bool // true if a value of zero is written, too
}{
	{"machine_cpu_cores", "logical CPUs", func(m Machine) float64 { return float64(m.Cores) }, false},
	{"machine_cpu_physical_cores", "physical cores", func(m Machine) float64 { return float64(m.Physical) }, false},
	{"machine_cpu_sockets", "CPU packages", func(m Machine) float64 { return float64(m.Sockets) }, false},
	{"machine_memory_bytes", "memory", func(m Machine) float64 { return float64(m.Memory) }, false},
	{"machine_swap_bytes", "swap", func(m Machine) float64 { return float64(m.Swap) }, true},
}

// An emitter writes the lines of one family for one Subject.
type emitter struct {
	*page
	s      *Subject
	b      []byte // the labels of the Subject
	net    []byte // the labels of the Subject's network metrics
	device func(number string) string
}

func (e *emitter) add(v float64, more ...string) { e.writeEntry(e.b, v, 0, more...) }

func (e *emitter) addTime(d time.Duration, more ...string) { e.writeEntry(e.b, 0, d, more...) }

// A family describes a metric of Subjects. It contains the function that writes the lines of the metric.
type family struct {
	name, help string
	kind       Kind
	spec       bool     // true for a value from the configuration; its lines have no timestamp
	more       []string // names of further labels, in addition to the Subject's labels
	write      func(*emitter)
}

// Families returns the descriptions of the metrics that ServeContainers can serve.
func Families() (out []Description) {
	for _, f := range containerFamilies {
		labels := append([]string{"container", "id", "image", "name", "namespace", "pod"}, f.more...)
		out = append(out, Description{f.name, f.help, f.kind, labels})
	}
	for _, f := range machineFamilies {
		out = append(out, Description{f.name, f.help, Gauge, []string{"boot_id", "machine_id", "system_uuid"}})
	}
	return append(out, Description{"container_scrape_error", "", Gauge, nil}, Description{"machine_scrape_error", "", Gauge, nil},
		Description{"cadvisor_version_info", "", Gauge,
			[]string{"cadvisorRevision", "cadvisorVersion", "dockerVersion", "kernelVersion", "osVersion"}})
}

// A Description contains the name, the help text, the type and the labels of a metric.
type Description struct {
	Name, Help string
	Kind       Kind
	Labels     []string
}

func subjectValue(get func(*Subject) uint64) func(*emitter) {
	return func(e *emitter) { e.add(float64(get(e.s))) }
}

func writeSeconds(get func(*Subject) time.Duration) func(*emitter) {
	return func(e *emitter) { e.addTime(get(e.s)) }
}

func writeNetworks(get func(process.Interface) uint64) func(*emitter) {
	return func(e *emitter) {
		for _, i := range e.s.Network {
			e.writeEntry(e.net, float64(get(i)), 0, "interface", i.Name)
		}
	}
}

func writeDisks(get func(Disk) uint64) func(*emitter) {
	return func(e *emitter) {
		for _, d := range e.s.Disks {
			e.add(float64(get(d)), "device", d.Device)
		}
	}
}

func machineDevices(get func(disk.Device) float64) func(*emitter) {
	return func(e *emitter) {
		for _, d := range e.s.Devices {
			e.add(get(d), "device", d.Name)
		}
	}
}
