package cni

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/islet-edge/islet/net/bridge"
	"github.com/islet-edge/islet/net/ipam"
	"github.com/islet-edge/islet/net/netns"
	"github.com/islet-edge/islet/net/portmap"
	"github.com/moby/locker"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Interface is the name of a pod's interface.
const Interface = "eth0"

// BuiltIn is the result of Network.Config on a node without a CNI configuration.
const BuiltIn = "built in"

// tableName is the nftables table of the built-in network.
const tableName = "islet"

// undoTime is the timeout for undoing a failed Setup.
const undoTime = 10 * time.Second

// Config is the configuration of a Network.
type Config struct {
	Mode       Mode           // default Auto
	Standalone bool           // the node has no cluster; configurations that cannot be used are then skipped in mode Auto
	ConfDir    string         // directory of CNI configurations
	BinDirs    []string       // directories of CNI plugins
	PodCIDRs   []netip.Prefix // at most one for each IP family; the default is 10.42.0.0/24
	Bridge     string         // default islet0
	Hairpin    bool           // the bridge may send a frame back to the pod that sent it
	DataDir    string         // directory of the host ports, the CNI cache and the links to plugins
	NamedDir   string         // directory of named network namespaces, for CNI plugins; default /var/run/netns
	Leases     ipam.Store
	Log        *slog.Logger
	Host       netns.NS // the node's network namespace; the default is the process's own
	// Changed is called when sandboxes may have become stale, or when waiting pods may now get a network. It may be nil, and must not
	// block.
	Changed func()
	// RecordEvent is called for each event about the node. OnRepair is called with the kind of each repaired item. Both functions may be
	// nil, and must not block.
	RecordEvent func(warning bool, reason, message string)
	// If Hold is true, the ports of sandboxes are not repaired. Hold is set during the trial of a new version of the agent. If the new
	// version ran in a wrong network namespace by mistake, a repair would move the veths of pods into this namespace.
	Hold     bool
	OnRepair func(kind string)
	// Sandbox returns the network namespace of a sandbox that an earlier process created, and the name of its pod. It may be nil.
	Sandbox func(id string) (path, pod string)
}

// Network sets up and tears down the network of each sandbox. Its methods are safe for concurrent use.
type Network struct {
	cfg          Config
	ports        *portmap.Table
	plugins      *pluginNetwork
	sandboxLocks locker.Locker // serializes the operations of one sandbox
	checkMoved   chan struct{} // capacity 1; a value makes Run check whether all pods have moved

	operations sync.RWMutex // held for writing by Reconcile and SetPodCIDRs, and for reading by every other operation

	mu        sync.Mutex
	addresses *ipam.Allocator // nil until the leases are loaded
	cidrs     []netip.Prefix
	cidrsSet  bool           // SetPodCIDRs has set cidrs without an error
	former    []netip.Prefix // the node's addresses in former pod CIDRs in which pods still have addresses
	problem   error          // the error of the CNI directory while an earlier configuration is active
	phase
	ensured ensuredBridge
	tracker *tracker
	missing *missingFiles
	ended   *endedSandboxes

	startTime time.Duration // see defaultStartTime
}

// New validates the configuration. It changes nothing on the node.
func New(cfg Config) (*Network, error) {
	if cfg.Bridge == "" {
		cfg.Bridge = "islet0"
	}
	if len(cfg.PodCIDRs) == 0 {
		cfg.PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.42.0.0/24")}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Mode == "" {
		cfg.Mode = Auto
	}
	switch {
	case cfg.Mode != Auto && cfg.Mode != BuiltInOnly && cfg.Mode != CNIOnly:
		return nil, fmt.Errorf("pod network: mode %q is unknown: use %s, %s or %s",
			cfg.Mode, Auto, BuiltInOnly, CNIOnly)
	case cfg.Leases == nil:
		return nil, errors.New("pod network: no lease store")
	case !filepath.IsAbs(cfg.DataDir):
		return nil, fmt.Errorf("pod network: data directory %q is not absolute", cfg.DataDir)
	case len(cfg.Bridge) > 15 || strings.ContainsAny(cfg.Bridge, "/ :%") || strings.Trim(cfg.Bridge, ".") == "":
		return nil, fmt.Errorf("pod network: invalid bridge name %q: use at most 15 characters, without slash, colon, percent and space",
			cfg.Bridge)
	}
	if err := new(ipam.Allocator).SetRanges(cfg.PodCIDRs); err != nil {
		return nil, fmt.Errorf("pod network: %w", err)
	}
	if cfg.Mode == BuiltInOnly {
		cfg.ConfDir = ""
	}
	return &Network{
		cfg:        cfg,
		checkMoved: make(chan struct{}, 1),
		cidrs:      cfg.PodCIDRs,
		tracker:    newTracker(),
		missing:    newMissingFiles(),
		ended:      newEndedSandboxes(),
		startTime:  defaultStartTime,
		ports:      portmap.New(cfg.Host, tableName, cfg.Bridge, filepath.Join(cfg.DataDir, "ports")),
		plugins:    newPlugins(cfg),
	}, nil
}

// Setup connects the namespace of a sandbox to the network. It returns the addresses of the sandbox, in the order of the pod CIDRs. A
// repeated call succeeds and returns the same addresses. After a failure, Setup undoes its changes. If it cannot undo a change, Run does so
// later, because the pod may be deleted and Teardown never called.
func (n *Network) Setup(ctx context.Context, id, path string, cfg *api.PodSandboxConfig) ([]netip.Addr, error) {
	if err := validID(id); err != nil {
		return nil, err
	}
	ended := n.ended.remove(id) // ends its removal, which holds the lock
	n.sandboxLocks.Lock(id)
	defer n.sandboxLocks.Unlock(id)
	n.operations.RLock()
	defer n.operations.RUnlock()
	if n.ended.remove(id) || ended { // a failed removal may have removed some of the objects
		if err := n.tearDownSandbox(ctx, id, ""); err != nil { // the path may lead to the namespace of another sandbox by now
			n.ended.add(id)
			return nil, fmt.Errorf("network of sandbox %s: %w", id, err)
		}
	}
	addrs, err := n.setUpSandbox(ctx, id, path, cfg)
	if err != nil {
		fresh, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
		defer cancel()
		left := n.tearDownSandbox(fresh, id, path)
		if left != nil {
			n.ended.add(id)
		}
		return nil, errors.Join(fmt.Errorf("network of sandbox %s: %w", id, err), left)
	}
	return addrs, nil
}

// setUpSandbox uses the CNI configuration if there is one. But a sandbox that is already on the built-in network stays there until a CNI
// configuration has taken over.
func (n *Network) setUpSandbox(ctx context.Context, id, path string, cfg *api.PodSandboxConfig) ([]netip.Addr, error) {
	addresses, err := n.loadLeases(ctx)
	if err != nil {
		return nil, err
	}
	isBuiltIn := n.isBuiltIn(addresses, id)
	if isBuiltIn && !n.IsStale(id) {
		return n.setupBuiltIn(ctx, addresses, id, netns.At(path), cfg)
	}
	list, err := n.activeList(n.plugins.confs.currentList())
	if err != nil {
		return nil, err
	}
	if list == nil {
		return n.setupBuiltIn(ctx, addresses, id, netns.At(path), cfg)
	}
	if isBuiltIn {
		if err := n.tearDownSandbox(ctx, id, path); err != nil {
			return nil, err
		}
	}
	if err := n.checkPodNetwork(ctx); err != nil {
		return nil, err
	}
	addrs, err := n.plugins.setUpSandbox(ctx, list, id, path, cfg)
	if err != nil {
		n.missing.addMissing(err)
	}
	return addrs, err
}

func (n *Network) setupBuiltIn(
	ctx context.Context, addresses *ipam.Allocator, id string, pod netns.NS, cfg *api.PodSandboxConfig,
) ([]netip.Addr, error) {
	br, err := n.ensureRecent()
	if err != nil {
		return nil, err
	}
	addrs, err := addresses.Allocate(ctx, id)
	if err != nil {
		return nil, err
	}
	port, err := n.portOf(br, id, addrs)
	if err != nil {
		return nil, err
	}
	if err := attachPort(n.cfg.Host, pod, port); err != nil {
		return nil, err
	}
	n.tracker.addWire(vethPair{id: id, path: pod.Path(), pod: podName(cfg)}) // from now on, notices about the veth count
	if err := n.ports.Add(id, hostPorts(cfg), addrs); err != nil {
		return nil, err // the caller tears down the sandbox, also for the tracker
	}
	return addrs, nil
}

// attachPort calls bridge.Attach. An existing connection of the sandbox stays if it is correct. A connection that is incomplete or belongs
// to another namespace is replaced.
func attachPort(host, pod netns.NS, p bridge.Port) error {
	err := bridge.Attach(host, pod, p)
	if !errors.Is(err, errExist) {
		return err
	}
	if right, err := bridge.IsAttached(host, pod, p); right || err != nil {
		return err
	}
	if err := errors.Join(bridge.Detach(host, p.Host), bridge.Detach(pod, p.Interface)); err != nil {
		return err
	}
	return bridge.Attach(host, pod, p)
}

// Teardown removes the objects that Setup created. Missing objects and a missing namespace are not errors. After a failure, Run retries,
// because the caller may never call again.
func (n *Network) Teardown(ctx context.Context, id, path string, cfg *api.PodSandboxConfig) error {
	if err := validID(id); err != nil {
		return err
	}
	n.tracker.removeWire(id) // from now on, the port is not repaired
	n.ended.remove(id)       // ends its removal, which holds the lock
	n.sandboxLocks.Lock(id)
	defer n.sandboxLocks.Unlock(id)
	n.operations.RLock()
	defer n.operations.RUnlock()
	if err := n.tearDownSandbox(ctx, id, path); err != nil {
		n.ended.add(id)
		return fmt.Errorf("remove network of sandbox %s: %w", id, err)
	}
	n.ended.remove(id)
	return nil
}

func (n *Network) tearDownSandbox(ctx context.Context, id, path string) error {
	n.tracker.removeWire(id)
	addresses, err := n.loadLeases(ctx)
	if err != nil {
		return err
	}
	if err := n.plugins.tearDownSandbox(ctx, id, path); err != nil {
		return err
	}
	if !addresses.HasAddress(id) {
		n.tracker.unmarkLost(id)
		return nil
	}
	if err := errors.Join(n.ports.Remove(id), bridge.Detach(n.cfg.Host, vethName(id))); err != nil {
		return err // keep the lease while an object may use the address
	}
	if err := addresses.Release(ctx, id); err != nil {
		return err
	}
	n.tracker.unmarkLost(id)
	if n.currentPhase().isMoving() {
		n.wakeRun() // this may have been the last pod on the built-in network
	}
	return nil
}

// Config returns the source of the pod network: the file of the active CNI configuration, or BuiltIn. In mode CNIOnly it returns "" if
// there is no configuration.
func (n *Network) Config() string {
	if list, _ := n.plugins.confs.currentList(); list != nil {
		return n.plugins.confs.activeFile()
	}
	if n.cfg.Mode == CNIOnly {
		return ""
	}
	return BuiltIn
}

// SetPodCIDRs sets the pod CIDRs, from which new pods get their addresses. Existing pods keep their addresses. It waits for running
// plugins, unless the last call has set the same pod CIDRs.
func (n *Network) SetPodCIDRs(ctx context.Context, cidrs []netip.Prefix) error {
	n.mu.Lock()
	set := n.cidrsSet && slices.Equal(n.cidrs, cidrs)
	n.mu.Unlock()
	if set {
		return nil
	}
	n.operations.Lock()
	defer n.operations.Unlock()
	addresses, err := n.loadLeases(ctx)
	if err != nil {
		return err
	}
	if err := addresses.SetRanges(cidrs); err != nil {
		return err
	}
	n.mu.Lock()
	n.cidrs, n.cidrsSet = slices.Clone(cidrs), false
	use := n.installed && !n.moved
	n.mu.Unlock()
	if use {
		if _, err := n.ensureBridge(); err != nil {
			return err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cidrsSet = true
	return nil
}

// PodCIDRs returns the networks from which new pods get their addresses.
func (n *Network) PodCIDRs() []netip.Prefix {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.cidrs)
}

// loadLeases returns the allocator. The first call loads the leases from the store.
func (n *Network) loadLeases(ctx context.Context) (*ipam.Allocator, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.addresses != nil {
		return n.addresses, nil
	}
	a, err := ipam.New(ctx, n.cfg.Leases)
	if err != nil {
		return nil, err
	}
	if err := a.SetRanges(n.cidrs); err != nil {
		return nil, err
	}
	n.addresses = a
	return a, nil
}

// networkOf returns the present or former pod CIDR that contains an address.
func (n *Network) networkOf(a netip.Addr) (netip.Prefix, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range slices.Concat(n.cidrs, n.former) {
		if p.Masked().Contains(a) {
			return p.Masked(), true
		}
	}
	return netip.Prefix{}, false
}

func unspecifiedAddr(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}
