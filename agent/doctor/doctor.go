package doctor

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/metrics/host"
)

// Severity orders findings.
type Severity int

// Only an Error keeps pods from running; a Warning is a risk or a loss, Info is
// worth knowing, OK is in order.
const (
	OK Severity = iota
	Info
	Warning
	Error
)

// String is the word that reports use.
func (s Severity) String() string { return [...]string{"ok", "info", "warning", "error"}[s] }

// MarshalText makes JSON hold the word.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// A Finding is one thing about the host.
type Finding struct {
	ID       string   `json:"id"` // stable, such as cgroup-memory
	Severity Severity `json:"severity"`
	What     string   `json:"what"`
	Advice   string   `json:"advice,omitempty"` // what to do; empty when in order

	remedy *remedy // nil: a person must decide
}

// Rooms are checks of other parts of the agent, which package agent connects.
type Rooms struct {
	// Examine looks at the devices that a configuration gives to containers.
	Examine func(classes []config.DeviceClass) ([]Complaint, error)
	// HostPorts reads at which ports programs of the host listen; taken says which of a pod's
	// host ports these are.
	HostPorts func(host fs.FS) (taken func(*v1.Pod) []string, err error)
	// ShutdownTime is how long pods may take to end when the machine goes off, ShutdownDelay
	// asks logind how long it waits.
	ShutdownTime  func(*kubelet.KubeletConfiguration) time.Duration
	ShutdownDelay func(ctx context.Context) (time.Duration, error)
	// Volatile is the device of a file system in memory that islet lays over a disk.
	Volatile string
}

// A Complaint is what is wrong with a device.
type Complaint struct {
	Resource     string
	What, Advice string
	Absent       bool // only that there is none, which may be meant
}

// Input is what the checks need to know of the agent's configuration, and the
// host as files.
type Input struct {
	Rooms
	Host fs.FS // the host's root; paths in it have no leading slash

	RootDir, StateDir, RunDir string
	OCIRuntime                string // empty: the shipped one, then crun, then runc
	ShippedOCI                string // path; empty: none was installed with this program
	SystemdCgroup             bool
	FailSwapOn, FailCgroupV1  bool
	SwapUnasked               bool           // nothing sets failSwapOn, and the node stands alone
	KernelSettings            map[string]int // by path below /proc/sys; empty unless they are protected
	ResolvConf                string         // file that pods' DNS is made from
	Ports                     []int          // TCP ports where another kubelet would listen
	PodCIDRs                  []netip.Prefix
	Bridge                    string // the built-in network's
	ForeignNetwork            bool   // a CNI configuration replaces the built-in network
	CNIConfDir                string
	OfAnother                 func(file string) string // the program whose own CNI configuration it is; nil: all count
	Alone                     bool                     // missing plugins mean the built-in network

	// BrokenCNI returns what is wrong with a CNI configuration file; nil: nobody knows.
	BrokenCNI func(file string) error
	// HasPlugin reports whether a CNI plugin of that type is there; nil: nobody knows.
	HasPlugin func(kind string) bool
	// Interfaces lists the host's network interfaces; nil: nobody knows.
	Interfaces func() ([]Interface, error)
	// RemoveInterface removes one that Interfaces has listed, unless it is in use by
	// now. It is called by Fix only.
	RemoveInterface func(name string, index int) error

	Bridges []string // of other agents on this host, which are nobody's mistake either

	// Pods asks the agent for its pods. Nil, or false: nobody knows.
	Pods func(ctx context.Context) ([]v1.Pod, bool)
	// Sandboxes asks the agent for the IDs of those that exist. Nil, or false:
	// nobody knows, and what belongs to none cannot be told from what does.
	Sandboxes func(ctx context.Context) (ids []string, ok bool)
	// Link asks the agent how it stands with its control plane. Nil, or false: nobody
	// knows, or the node stands alone.
	Link func(ctx context.Context) (Link, bool)
	// ShutdownNeed is how long pods may take to end when the machine goes off; 0: they do
	// not end before it.
	ShutdownNeed time.Duration
	// Left asks the agent what a move to another container runtime left behind; nil: nobody
	// knows.
	Left func(ctx context.Context) string
	// Devices looks at those of the configuration; nil: it has none.
	Devices func() ([]Complaint, error)
	// CRISocket is where the runtime of the pods is seen, ImageSocket that of its images;
	// empty: nowhere.
	CRISocket, ImageSocket string
	// Self is the process ID not to take for another agent.
	Self int
	// Built is when this program was made; the clock cannot be before.
	Built time.Time
}

// System is what of the host is not in files. Real asks this machine.
type System struct {
	Now    func() time.Time
	Disk   func(ctx context.Context, path string) (host.Disk, error)
	Find   func(program string) (path string, err error)
	Output func(ctx context.Context, path string, args ...string) (string, error)
	Users  func(program string) bool // an OCI runtime: it has user namespaces with idmapped mounts
}

// A patient is what checks look at and report to.
type patient struct {
	Input
	sys      System
	table    []mount
	agent    bool // one runs, as neighbours saw
	findings []Finding
}

func (p *patient) add(id string, s Severity, advice, what string, args ...any) {
	if s == OK {
		advice = ""
	}
	p.findings = append(p.findings, Finding{ID: id, Severity: s, What: fmt.Sprintf(what, args...), Advice: advice})
}

// remedy gives the last finding its remedy.
func (p *patient) remedy(what string, do func() error) {
	p.findings[len(p.findings)-1].remedy = &remedy{what, do}
}

// Check looks the host over. It takes a second or two at most, unless ctx ends
// before.
func Check(ctx context.Context, in Input, sys System) []Finding {
	p := &patient{Input: in, sys: sys}
	p.table = p.mountTable()
	p.ForeignNetwork = p.ForeignNetwork && !p.builtInStepsIn()
	for _, check := range []func(context.Context){
		p.kernel, p.capabilities, p.inotify, p.cgroups, p.runtime, p.confinement, p.users,
		p.mounts, p.disks, p.memory, p.swap, p.kernelSettings, p.clock,
		p.neighbours, p.leftovers, p.formerNode, p.forwarding, p.addresses, p.resolver, p.hostPorts, p.devices, p.shutdown, p.link,
		p.crictl, p.moved,
	} {
		if ctx.Err() != nil {
			p.add("interrupted", Warning, "run it again", "the examination was cut short: %v", ctx.Err())
			break
		}
		check(ctx)
	}
	return p.findings
}

// ExitCode is 1 when a finding is an error, else 0.
func ExitCode(findings []Finding) int {
	for _, f := range findings {
		if f.Severity == Error {
			return 1
		}
	}
	return 0
}

// Write prints findings for a person: what is in order only with all.
func Write(w io.Writer, findings []Finding, all bool) error {
	var b strings.Builder
	count := map[Severity]int{}
	for _, f := range findings {
		count[f.Severity]++
		if f.Severity == OK && !all {
			continue
		}
		fmt.Fprintf(&b, "%-8s %-18s %s\n", f.Severity, f.ID, f.What)
		if f.Advice != "" {
			fmt.Fprintf(&b, "%27s -> %s\n", "", f.Advice)
		}
	}
	fmt.Fprintf(&b, "%d in order, %d to know, %d warnings, %d errors\n", count[OK], count[Info], count[Warning], count[Error])
	_, err := io.WriteString(w, b.String())
	return err
}

// file reads a file of the host; empty when it cannot be read.
func (p *patient) file(path string) string {
	data, err := fs.ReadFile(p.Host, inHost(path))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

func (p *patient) exists(path string) bool {
	_, err := fs.Stat(p.Host, inHost(path))
	return err == nil
}

// inHost makes a path on the host one in its fs.FS.
func inHost(path string) string {
	if path = strings.Trim(path, "/"); path == "" {
		return "."
	}
	return path
}
