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

	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/printable"
	"github.com/islet-edge/islet/metrics/host"
)

// Severity is the severity of a finding.
type Severity int

// An Error prevents pods from running. A Warning is a risk, or a feature that does not work. An Info needs no action.
// OK means that a check has found no problem.
const (
	OK Severity = iota
	Info
	Warning
	Error
)

// String returns the severity's name in reports.
func (s Severity) String() string { return [...]string{"ok", "info", "warning", "error"}[s] }

// MarshalText writes the severity into JSON by its name.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// A Finding is a result of a check.
type Finding struct {
	ID       string   `json:"id"` // identifies the check, such as cgroup-memory; the ID does not change in later versions
	Severity Severity `json:"severity"`
	What     string   `json:"what"`
	Advice   string   `json:"advice,omitempty"` // how to fix the problem; empty for OK

	remedy *remedy // nil if Fix cannot remove the cause of the finding
}

// Externals are functions from other packages of the agent. Package agent sets them.
type Externals struct {
	// CheckClasses returns the problems of the devices that a configuration offers to containers.
	CheckClasses func(classes []config.DeviceClass) ([]Complaint, error)
	// HostPorts reads the ports at which programs of the host listen. It returns a function that describes each host
	// port of a pod at which a program already listens.
	HostPorts func(host fs.FS) (taken func(*v1.Pod) []string, err error)
	// ShutdownTime returns the maximum time for ending the pods when the machine shuts down.
	ShutdownTime func(*kubelet.KubeletConfiguration) time.Duration
	// ShutdownDelay returns how long logind waits for inhibitors.
	ShutdownDelay func(ctx context.Context) (time.Duration, error)
	// Volatile is the device name of the overlays in memory that islet mounts over directories on a read-only disk.
	Volatile string
}

// A Complaint describes a problem with a device.
type Complaint struct {
	Resource     string
	What, Advice string
	Absent       bool // the only problem is that the device is missing; this may be intended
}

// Input is the part of the agent's configuration that the checks need, and the host's files.
type Input struct {
	Externals
	Host fs.FS // files of the host's root directory; the paths have no leading slash

	RootDir, StateDir, RunDir string
	OCIRuntime                string // if empty, the agent tries the shipped runtime, then crun, then runc
	ShippedOCI                string // path of the runtime that was installed with this program; empty if no runtime was installed
	SystemdCgroup             bool
	FailSwapOn, FailCgroupV1  bool
	SwapUnasked               bool           // failSwapOn is not configured, and the node has no API server
	KernelSettings            map[string]int // expected values, by path below /proc/sys; empty unless protectKernelDefaults is set
	ResolvConf                string         // file from which the DNS configuration of pods is made
	Ports                     []int          // TCP ports at which another kubelet would listen
	PodCIDRs                  []netip.Prefix
	Bridge                    string // interface name of the built-in network's bridge
	ForeignNetwork            bool   // a CNI configuration is used instead of the built-in network
	CNIConfDir                string
	RealTime                  config.RealTime
	Standalone                bool // the built-in network is used instead of a CNI configuration whose plugin is missing

	// OfAnother returns the name of the program, such as podman, that uses a CNI configuration file only for the
	// program's own containers. OfAnother returns "" if the file is for pods. If OfAnother is nil, every file is for
	// pods.
	OfAnother func(file string) string
	// BrokenCNI returns the error of an invalid CNI configuration file. If BrokenCNI is nil, files are not checked.
	BrokenCNI func(file string) error
	// HasPlugin reports whether a CNI plugin of the given type is installed. If HasPlugin is nil, plugins are not
	// checked.
	HasPlugin func(kind string) bool
	// Interfaces lists the host's network interfaces. If it is nil, interfaces are not checked.
	Interfaces func() ([]Interface, error)
	// RemoveInterface removes an interface that Interfaces has returned. It does not remove an interface that has
	// been taken into use meanwhile. Only Fix calls it.
	RemoveInterface func(name string, index int) error

	Bridges []string // bridges of all agents on this host, which must not be reported as leftovers of another node

	// Pods returns the agent's pods. If the pods are not known, Pods is nil or returns false.
	Pods func(ctx context.Context) ([]v1.Pod, bool)
	// Sandboxes returns the IDs of the agent's sandboxes. If the sandboxes are not known, Sandboxes is nil or
	// returns false. In that case leftovers cannot be distinguished from the resources of running pods.
	Sandboxes func(ctx context.Context) (ids []string, ok bool)
	// Link returns the state of the agent's link to its control plane. If the state is unknown, or the node has no
	// API server, Link is nil or returns false.
	Link func(ctx context.Context) (Link, bool)
	// ShutdownNeed is the maximum time for ending the pods when the machine shuts down. It is 0 if pods are not ended
	// at a shutdown.
	ShutdownNeed time.Duration
	// Leftovers describes the pods and images that the former container runtime still has after the node has moved
	// to another one. Leftovers is nil if this is unknown.
	Leftovers func(ctx context.Context) string
	// Devices returns the problems of the configured devices. It is nil if no devices are configured.
	Devices func() ([]Complaint, error)
	// CRISocket is the socket at which crictl can list the pods. ImageSocket is the socket at which crictl can list
	// the pods' images. Each is empty if there is no such socket.
	CRISocket, ImageSocket string
	// Self is the process ID of this process. The checks use it so that they do not report this
	// process as another agent.
	Self int
	// Service is the service that starts the agent. It is nil if there is no such service, or if the report is
	// not about the service.
	Service *service
	// BuildTime is the build time of this program. The clock is wrong if it shows an earlier time.
	BuildTime time.Time
}

// System contains functions that return those facts about the host that no file contains. NewSystem returns the System
// of this machine.
type System struct {
	Now    func() time.Time
	Disk   func(ctx context.Context, path string) (host.Disk, error)
	Find   func(program string) (path string, err error)
	Output func(ctx context.Context, path string, args ...string) (string, error)
	Watch  func() error              // creates and closes an inotify instance
	Users  func(program string) bool // reports whether an OCI runtime supports user namespaces with idmapped mounts
}

// A checkup is one run of the checks, with its input and findings.
type checkup struct {
	Input
	sys       System
	table     []mount
	agentRuns bool // an agent is running; checkNeighbours sets this field
	findings  []Finding
}

func (p *checkup) add(id string, s Severity, advice, what string, args ...any) {
	if s == OK {
		advice = ""
	}
	p.findings = append(p.findings, Finding{ID: id, Severity: s, What: fmt.Sprintf(what, args...), Advice: advice})
}

// setRemedy sets the remedy of the last finding.
func (p *checkup) setRemedy(what string, do func() error) {
	p.findings[len(p.findings)-1].remedy = &remedy{what, do}
}

// Check runs all checks. This takes one or two seconds. If ctx ends, Check returns the findings so far and a
// warning.
func Check(ctx context.Context, in Input, sys System) []Finding {
	p := &checkup{Input: in, sys: sys}
	p.table = p.mountTable()
	p.ForeignNetwork = p.ForeignNetwork && !p.usesBuiltInNetwork()
	for _, check := range []func(context.Context){
		p.checkKernel, p.checkCapabilities, p.checkInotify, p.checkCgroups, p.checkRuntime, p.checkConfinement, p.checkUserNamespaces,
		p.checkRealTime, p.checkMounts, p.checkDisks, p.checkMemory, p.checkSwap, p.checkKernelSettings, p.checkClock,
		p.checkNeighbours, p.checkLeftovers, p.formerNode, p.checkForwarding, p.checkAddresses, p.checkResolver, p.checkHostPorts,
		p.checkDevices, p.checkShutdown, p.checkLink,
		p.checkCrictl, p.checkMove, p.service,
	} {
		if ctx.Err() != nil {
			p.add("interrupted", Warning, "run it again", "the examination was interrupted: %v", ctx.Err())
			break
		}
		check(ctx)
	}
	return p.findings
}

// ExitCode returns 1 if a finding is an Error, otherwise 0.
func ExitCode(findings []Finding) int {
	for _, f := range findings {
		if f.Severity == Error {
			return 1
		}
	}
	return 0
}

// Write prints findings as text. It prints OK findings only if all is set. Findings may quote other programs, the host and servers, so
// Write replaces their control characters.
func Write(w io.Writer, findings []Finding, all bool) error {
	var b strings.Builder
	count := map[Severity]int{}
	for _, f := range findings {
		count[f.Severity]++
		if f.Severity == OK && !all {
			continue
		}
		fmt.Fprintf(&b, "%-8s %-18s %s\n", f.Severity, f.ID, printable.Line(f.What))
		if f.Advice != "" {
			fmt.Fprintf(&b, "%27s -> %s\n", "", printable.Line(f.Advice))
		}
	}
	fmt.Fprintf(&b, "%d in order, %d to know, %s, %s\n", count[OK], count[Info], api.Pluralize(count[Warning], "warning"),
		api.Pluralize(count[Error], "error"))
	_, err := io.WriteString(w, b.String())
	return err
}

// readText returns the trimmed content of a host file, or "" if it cannot be read.
func (p *checkup) readText(path string) string {
	data, err := fs.ReadFile(p.Host, inHost(path))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

func (p *checkup) exists(path string) bool {
	_, err := fs.Stat(p.Host, inHost(path))
	return err == nil
}

// inHost converts a path on the host to a path in the host's fs.FS.
func inHost(path string) string {
	if path = strings.Trim(path, "/"); path == "" {
		return "."
	}
	return path
}
