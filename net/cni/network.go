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

// BuiltIn is what Config says of a node without a CNI configuration.
const BuiltIn = "built in"

// tableName is the nftables table of the built-in network.
const tableName = "islet"

// undoTime bounds what is done to undo a Setup that failed.
const undoTime = 10 * time.Second

// Config of a Network. Zero values take the defaults that are named.
type Config struct {
	Mode     Mode           // default Auto
	Alone    bool           // the node is in no cluster: with Auto, a configuration that cannot be used is left out
	ConfDir  string         // CNI configuration; used when it has any
	BinDirs  []string       // CNI plugins
	PodCIDRs []netip.Prefix // one of a family at most; default 10.42.0.0/24
	Bridge   string         // default islet0
	Hairpin  bool           // let a pod's frames come back to it
	DataDir  string         // host ports, CNI cache, host-local
	Leases   ipam.Store
	Log      *slog.Logger
	Host     netns.NS // the node's side; default the process's own namespace
	// Changed is called by Run when sandboxes may be stale, or pods that had to wait
	// for a network may get one. It must not block. Nil: nobody wants to know.
	Changed func()
	// Tell takes events of the node, Repaired the kind of each item that was repaired.
	// They must not block. Nil: nobody wants to know.
	Tell func(warning bool, reason, message string)
	// Hold has no pod connected again that lost its port. What is on trial is judged by what
	// it does to the pods: one that works in a wrong network namespace would take them there.
	Hold     bool
	Repaired func(kind string)
	// Sandbox returns the network namespace of a sandbox that lived before this process,
	// and the pod's name. Nil: none did.
	Sandbox func(id string) (path, pod string)
}

// Network sets sandboxes' networks up and down. Its methods may be called
// concurrently.
type Network struct {
	cfg     Config
	ports   *portmap.Table
	plugins *plugins
	busy    locker.Locker // one operation at a time for a sandbox
	poked   chan struct{} // capacity 1: Run is to see whether pods have moved

	all sync.RWMutex // held for writing by Reconcile and SetPodCIDRs, for reading by each operation

	mu        sync.Mutex
	addresses *ipam.Allocator // nil until the leases are loaded
	cidrs     []netip.Prefix
	former    []netip.Prefix // the node's addresses in pod CIDRs of before that pods still use
	problem   error          // what is wrong with the CNI directory while one of before is in force
	place
	found foundation
	keep  *keeper
}

// New checks the configuration. Nothing on the node is touched before the first
// call of a method.
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
		return nil, fmt.Errorf("pod network: mode %q is unknown: use %s, %s or %s", cfg.Mode, Auto, BuiltInOnly, CNIOnly)
	case cfg.Leases == nil:
		return nil, errors.New("pod network: no lease store")
	case !filepath.IsAbs(cfg.DataDir):
		return nil, fmt.Errorf("pod network: data directory %q is not absolute", cfg.DataDir)
	case len(cfg.Bridge) > 15 || strings.ContainsAny(cfg.Bridge, "/ :%") || strings.Trim(cfg.Bridge, ".") == "":
		return nil, fmt.Errorf("pod network: bridge name %q is not possible: at most 15 characters, no slash, colon, percent or space", cfg.Bridge)
	}
	if err := new(ipam.Allocator).SetRanges(cfg.PodCIDRs); err != nil {
		return nil, fmt.Errorf("pod network: %w", err)
	}
	if cfg.Mode == BuiltInOnly {
		cfg.ConfDir = ""
	}
	return &Network{
		cfg:     cfg,
		poked:   make(chan struct{}, 1),
		cidrs:   cfg.PodCIDRs,
		keep:    newKeeper(),
		ports:   portmap.New(cfg.Host, tableName, cfg.Bridge, filepath.Join(cfg.DataDir, "ports")),
		plugins: newPlugins(cfg),
	}, nil
}

// Setup connects the namespace of a sandbox and returns its addresses, the one of
// the first pod CIDR first. Calling it again is success with the same addresses.
// When it fails nothing is left of it.
func (n *Network) Setup(ctx context.Context, id, path string, cfg *api.PodSandboxConfig) ([]netip.Addr, error) {
	if err := validID(id); err != nil {
		return nil, err
	}
	n.busy.Lock(id)
	defer n.busy.Unlock(id)
	n.all.RLock()
	defer n.all.RUnlock()
	addrs, err := n.setup(ctx, id, path, cfg)
	if err != nil {
		fresh, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
		defer cancel()
		return nil, errors.Join(fmt.Errorf("network of sandbox %s: %w", id, err), n.teardown(fresh, id))
	}
	return addrs, nil
}

// setup uses the CNI configuration, if there is one. A sandbox that has an address
// of islet's own network stays there until the other one has taken over.
func (n *Network) setup(ctx context.Context, id, path string, cfg *api.PodSandboxConfig) ([]netip.Addr, error) {
	addresses, err := n.leases(ctx)
	if err != nil {
		return nil, err
	}
	own := n.own(addresses, id)
	if own && !n.Stale(id) {
		return n.setupOwn(ctx, addresses, id, netns.At(path), cfg)
	}
	list, err := n.inForce(n.plugins.confs.current())
	if err != nil {
		return nil, err
	}
	if list == nil {
		return n.setupOwn(ctx, addresses, id, netns.At(path), cfg)
	}
	if own {
		if err := n.teardown(ctx, id); err != nil {
			return nil, err
		}
	}
	if err := n.Admit(); err != nil {
		return nil, err
	}
	return n.plugins.setup(ctx, list, id, path, cfg)
}

func (n *Network) setupOwn(ctx context.Context, addresses *ipam.Allocator, id string, pod netns.NS, cfg *api.PodSandboxConfig) ([]netip.Addr, error) {
	br, err := n.ensured()
	if err != nil {
		return nil, err
	}
	addrs, err := addresses.Allocate(ctx, id)
	if err != nil {
		return nil, err
	}
	port, err := n.port(br, id, addrs)
	if err != nil {
		return nil, err
	}
	if err := attach(n.cfg.Host, pod, port); err != nil {
		return nil, err
	}
	if err := n.ports.Add(id, mappings(cfg), addrs); err != nil {
		return nil, err
	}
	n.keep.wired(wire{id: id, path: pod.Path(), pod: podName(cfg)})
	return addrs, nil
}

// attach is bridge.Attach that may be repeated: what is there already is kept
// when it is right, and replaced when it is half-made or of a former namespace.
func attach(host, pod netns.NS, p bridge.Port) error {
	err := bridge.Attach(host, pod, p)
	if !errors.Is(err, errExist) {
		return err
	}
	if right, err := bridge.Attached(host, pod, p); right || err != nil {
		return err
	}
	if err := errors.Join(bridge.Detach(host, p.Host), bridge.Detach(pod, p.Interface)); err != nil {
		return err
	}
	return bridge.Attach(host, pod, p)
}

// Teardown removes all that Setup made; success when there is nothing, also when
// the namespace is gone.
func (n *Network) Teardown(ctx context.Context, id, path string, cfg *api.PodSandboxConfig) error {
	if err := validID(id); err != nil {
		return err
	}
	n.keep.unwired(id) // its repair must not wait for this
	n.busy.Lock(id)
	defer n.busy.Unlock(id)
	n.all.RLock()
	defer n.all.RUnlock()
	if err := n.teardown(ctx, id); err != nil {
		return fmt.Errorf("remove network of sandbox %s: %w", id, err)
	}
	return nil
}

func (n *Network) teardown(ctx context.Context, id string) error {
	n.keep.unwired(id)
	addresses, err := n.leases(ctx)
	if err != nil {
		return err
	}
	if err := n.plugins.teardown(ctx, id); err != nil {
		return err
	}
	if !addresses.Has(id) {
		n.keep.forget(id)
		return nil
	}
	if err := errors.Join(n.ports.Remove(id), bridge.Detach(n.cfg.Host, vethName(id))); err != nil {
		return err // the lease stays as long as something may use the address
	}
	if err := addresses.Release(ctx, id); err != nil {
		return err
	}
	n.keep.forget(id)
	if n.now().moving() {
		n.poke() // it may have been the last one
	}
	return nil
}

// Config names what pods get their network from: the file of the CNI configuration
// in use, BuiltIn, or nothing while there is none.
func (n *Network) Config() string {
	if list, _ := n.plugins.confs.current(); list != nil {
		return n.plugins.confs.file()
	}
	if n.cfg.Mode == CNIOnly {
		return ""
	}
	return BuiltIn
}

// SetPodCIDRs changes the networks that new pods get their addresses from. Pods
// that exist keep theirs.
func (n *Network) SetPodCIDRs(ctx context.Context, cidrs []netip.Prefix) error {
	n.all.Lock()
	defer n.all.Unlock()
	addresses, err := n.leases(ctx)
	if err != nil {
		return err
	}
	if err := addresses.SetRanges(cidrs); err != nil {
		return err
	}
	n.mu.Lock()
	n.cidrs = slices.Clone(cidrs)
	use := n.laid && !n.moved
	n.mu.Unlock()
	if use {
		_, err = n.ensure()
	}
	return err
}

// PodCIDRs are the networks that new pods get their addresses from.
func (n *Network) PodCIDRs() []netip.Prefix {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.cidrs)
}

// leases returns the allocator, and loads it when that is still to be done.
func (n *Network) leases(ctx context.Context) (*ipam.Allocator, error) {
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

// networkOf returns the pod CIDR of an address, which may be a former one.
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

func unspecified(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}
