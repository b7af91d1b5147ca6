package machine

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/agent/pod/spec/admit"
	"github.com/islet-edge/islet/agent/pod/spec/translate"
	"github.com/islet-edge/islet/agent/pod/status"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/quota"
	"github.com/islet-edge/islet/internal/realtime"
	"github.com/islet-edge/islet/internal/reserve"
	"github.com/islet-edge/islet/net/address"
	"github.com/islet-edge/islet/net/netns"
)

// nodeFresh is the time for which the node's addresses and resolv.conf are cached. The agent reads them when they are
// needed, and not periodically.
const nodeFresh = 10 * time.Second

// A Machine provides the facts about the machine that pods need.
type Machine struct {
	cfg               *config.Config
	appArmor, seLinux error
	quotas            bool // set if the file system of the volumes supports quotas

	find      func(previous []netip.Addr) ([]netip.Addr, error) // finds the addresses of the machine
	meta      Meta                                              // stores the known addresses; may be nil
	changed   chan struct{}                                     // capacity 1; a value means that there are changes
	share     reserve.Share
	swap      int64                         // bytes
	devices   Devices                       // may be nil
	pressures func() []v1.NodeConditionType // may be nil

	mu         sync.Mutex
	labels     map[string]string
	taints     []v1.Taint
	advertised v1.ResourceList             // extended resources of the Node that other components advertise
	engine     string                      // name of the container runtime
	features   func() *cri.RuntimeFeatures // returns the features that the runtime has last reported; nil before the runtime is known
	readAt     time.Time
	present    []netip.Addr // the addresses that the machine has now
	findErr    error        // why the addresses could not be read when they were last read; the Follower then reads them again
	known      []netip.Addr // the last addresses that the machine had; an earlier run of the agent may have found them
	last       translate.Node
	changes    changes                       // since the last call of takeChanges
	observed   func(types.UID) plan.Observed // may be nil
}

// Devices manages resources that are allocated as individual devices. *device.Manager implements it.
type Devices interface {
	// Resources returns the device resources for the Node.
	Resources() (capacity, allocatable v1.ResourceList)
	// RemoveManaged adjusts the resources that are available to pods.
	RemoveManaged(v1.ResourceList)
}

// SetExclusive sets a function that reports whether a container has exclusive CPUs. It must be called before any pod
// runs.
func (n *Machine) SetExclusive(has func(uid types.UID, container string) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last.Exclusive = has
}

// SetDevices must be called before any other method.
func (n *Machine) SetDevices(d Devices) { n.devices = d }

// SetPressures sets a function that returns the current pressure conditions. It must be called
// before any other method.
func (n *Machine) SetPressures(now func() []v1.NodeConditionType) { n.pressures = now }

// SetObserved sets a function that returns what a pod has in the runtime. It must be called before any pod runs.
func (n *Machine) SetObserved(pod func(types.UID) plan.Observed) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.observed = pod
}

// schedulers returns the scheduling of a pod's running containers: see realtime.Node.Running.
func (n *Machine) schedulers(uid types.UID) map[string]string {
	n.mu.Lock()
	observed := n.observed
	n.mu.Unlock()
	if observed == nil {
		return nil
	}
	out := map[string]string{}
	for _, c := range observed(uid).Containers {
		if c.Scheduler != "" && c.MayRun() {
			out[c.Name] = c.Scheduler
		}
	}
	return out
}

// Pressures returns the current pressure conditions.
func (n *Machine) Pressures() []v1.NodeConditionType {
	if n.pressures == nil {
		return nil
	}
	return n.pressures()
}

// New inspects the machine, and loads the last addresses of the node from the store. The errors appArmor and seLinux are the
// reasons why AppArmor profiles and SELinux labels have no effect. They are nil if profiles and labels have an effect.
func New(ctx context.Context, cfg *config.Config, meta Meta, appArmor, seLinux error) (*Machine, error) {
	n := &Machine{cfg: cfg, meta: meta, appArmor: appArmor, seLinux: seLinux, quotas: quota.Supported(cfg.Dirs.Root),
		labels: map[string]string{v1.LabelHostname: cfg.Node.Name}, changed: make(chan struct{}, 1)}
	n.find = func(previous []netip.Addr) ([]netip.Addr, error) {
		return address.Find(netns.NS{}, previous, cfg.Edge.BridgeName)
	}
	if err := n.loadAddresses(ctx); err != nil {
		return nil, fmt.Errorf("load the last addresses of the node: %w", err)
	}
	for k, v := range cfg.Node.Labels {
		n.labels[k] = v
	}
	has, err := inspectMachine(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("look at what this machine has: %w", err)
	}
	k := cfg.Kubelet
	if n.share, err = reserve.New(&k, has.Machine); err != nil {
		return nil, err
	}
	n.swap = has.swap
	n.last = translate.Node{
		Name: cfg.Node.Name, ClusterDNS: k.ClusterDNS, ClusterDomain: k.ClusterDomain, LogDir: k.PodLogsDir,
		SeccompDir: filepath.Join(cfg.Dirs.Root, "seccomp"), SeccompDefault: *k.SeccompDefault, CPUPeriod: cfg.CPUPeriod,
		OOMGroup: cfg.KillsWholeContainers(os.DirFS("/")), SwapCgroup: config.SwapCgroup(os.DirFS("/")),
		MemoryBytes: n.share.Capacity.Memory().Value(), Allocatable: n.share.Allocatable(), Throttles: throttlePaths("/"),
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		n.last.MemoryQoS = &translate.QoS{
			Enabled: cfg.GateEnabled("MemoryQoS"), Tiered: k.MemoryReservationPolicy == kubelet.TieredReservationMemoryReservationPolicy,
		}
		if f := k.MemoryThrottlingFactor; f != nil {
			n.last.MemoryQoS.Throttle = *f
		}
	}
	if cfg.GateEnabled("DefaultPodSysctls") {
		n.last.Sysctls = k.DefaultPodSysctls
	}
	if k.MemorySwap.SwapBehavior == "LimitedSwap" {
		n.last.SwapBytes = has.swap
	}
	return n, nil
}

// Now returns the current facts about the node. While the machine has no address, its last addresses are returned.
func (n *Machine) Now() translate.Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refresh(nodeFresh)
	return n.last
}

// Name returns the name of the Node.
func (n *Machine) Name() string { return n.cfg.Node.Name }

// Host returns the facts about the node for the statuses of pods.
func (n *Machine) Host() status.Host {
	ips := n.Now().IPs
	n.mu.Lock()
	defer n.mu.Unlock()
	return status.Host{IPs: ips, Runtime: cmp.Or(n.engine, "containerd")}
}

// SetRuntime sets the name of the container runtime, which is the prefix of container IDs, and a function that returns the features that
// the runtime has last reported. It must be called before any pod is admitted.
func (n *Machine) SetRuntime(name string, features func() *cri.RuntimeFeatures) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.engine, n.features = name, features
}

// runtimeFeatures returns the features that the runtime has last reported. Before the runtime is known, no pod is admitted. A preview of
// the admission then assumes all features.
func (n *Machine) runtimeFeatures() *cri.RuntimeFeatures {
	n.mu.Lock()
	features := n.features
	n.mu.Unlock()
	if features == nil {
		return &cri.RuntimeFeatures{SupplementalGroupsPolicy: true, MountOptions: true}
	}
	return features()
}

// Hostname returns the hostname of a pod, for its /etc/hosts.
func (n *Machine) Hostname(pod *v1.Pod) (host, fqdn string) {
	return translate.Hostname(pod, n.cfg.Kubelet.ClusterDomain)
}

// SetNode sets the Node's labels, taints and capacity. In the capacity it uses only the extended resources, which other
// components advertise. It reports whether the labels, the taints or these resources have changed.
func (n *Machine) SetNode(labels map[string]string, taints []v1.Taint, capacity v1.ResourceList) (changed bool) {
	advertised := v1.ResourceList{}
	for name, q := range capacity {
		if admit.IsExtended(name) {
			advertised[name] = q
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	changed = !maps.Equal(n.labels, labels) || !equality.Semantic.DeepEqual(n.taints, taints) ||
		!equality.Semantic.DeepEqual(n.advertised, advertised)
	n.labels, n.taints, n.advertised = labels, taints, advertised
	return changed
}

// Labels returns the labels of the Node.
func (n *Machine) Labels() map[string]string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.labels
}

// IgnoredFields returns the fields of a pod that have no effect on this node, with one sentence for each.
func (n *Machine) IgnoredFields(pod *v1.Pod) (fields, sentences []string) {
	for _, f := range admit.IgnoredFields(pod, n.Admit()) {
		fields, sentences = append(fields, f.Field), append(sentences, f.String())
	}
	return fields, sentences
}

// Admit returns the facts about the node for the admission of pods.
func (n *Machine) Admit() admit.Node {
	now := n.Now()
	room := maps.Clone(now.Allocatable)
	n.mu.Lock()
	maps.Copy(room, n.advertised)
	labels, taints := n.labels, n.taints
	n.mu.Unlock()
	if n.devices != nil {
		n.devices.RemoveManaged(room)
	}
	return admit.Node{Name: now.Name, OS: runtime.GOOS, Arch: runtime.GOARCH, Labels: labels, Taints: taints, Allocatable: room,
		Sysctls: n.cfg.Kubelet.AllowedUnsafeSysctls, StaticCPU: n.cfg.Kubelet.CPUManagerPolicy == "static",
		StaticMemory: n.cfg.Kubelet.MemoryManagerPolicy == kubelet.StaticMemoryManagerPolicy, AppArmor: n.appArmor, SELinux: n.seLinux,
		Quotas: n.quotas, Limits: *n.cfg.Kubelet.LocalStorageCapacityIsolation, Pressures: n.Pressures(), Alpha: n.alphaGates(),
		RealTime: n.RealTime(), StrictGroups: n.runtimeFeatures().GetSupplementalGroupsPolicy(), HasSwap: now.HasSwap}
}

// RealTime returns the facts that decide about real time. It reads the kernel's limits only if the configuration allows real
// time to any pod.
func (n *Machine) RealTime() realtime.Node {
	k := &n.cfg.Kubelet
	out := realtime.Node{Config: n.cfg.Edge.RealTime, StaticCPU: k.CPUManagerPolicy == "static", Remote: n.cfg.RuntimeEndpoint != "",
		Running: n.schedulers}
	if len(out.Config.Pods) > 0 {
		out.Kernel = realtime.ReadKernel(os.DirFS("/"))
	}
	return out
}

// RealTimeBudget returns the budget of a pod for FIFO and RR, and the budget of all pods together: see realtime.Node.Budgets.
func (n *Machine) RealTimeBudget(pod *v1.Pod) (own, all time.Duration) {
	if !realtime.Requested(pod) {
		return 0, 0
	}
	node := n.RealTime()
	return node.Budgets(pod)
}

// alphaGates returns the feature gates of the alpha fields that have an effect on this node.
func (n *Machine) alphaGates() (on []string) {
	for _, gate := range []string{config.GateEmptyDirMode, config.GateFileOwners} {
		if n.cfg.GateEnabled(gate) {
			on = append(on, gate)
		}
	}
	if n.cfg.GateEnabled(config.GateBindOptions) && n.runtimeFeatures().GetMountOptions() {
		on = append(on, config.GateBindOptions)
	}
	return on
}
