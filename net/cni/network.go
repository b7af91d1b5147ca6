package cni

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/islet-edge/islet/net/bridge"
	"github.com/islet-edge/islet/net/ipam"
	"github.com/islet-edge/islet/net/netns"
	"github.com/islet-edge/islet/net/nft"
	"github.com/islet-edge/islet/net/portmap"
	"github.com/moby/locker"
	"github.com/vishvananda/netlink"
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
	problem   error // what is wrong with the CNI directory while one of before is in force
	place
	found foundation
}

// foundation is what the last ensure left behind: the bridge, and when that was.
type foundation struct {
	index int
	at    time.Time
}

// ensureFresh is for how long ensure is not repeated while pods start: what it looks
// at costs more the more pods there are.
const ensureFresh = 5 * time.Second

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
		ports:   portmap.New(cfg.Host, tableName, filepath.Join(cfg.DataDir, "ports")),
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
	port := bridge.Port{Bridge: br, Host: vethName(id), Interface: Interface, MAC: bridge.MAC(addrs[0]), MTU: br.Attrs().MTU, Hairpin: n.cfg.Hairpin}
	for _, a := range addrs {
		network := n.networkOf(a)
		port.Addresses = append(port.Addresses, netip.PrefixFrom(a, network.Bits()))
		everywhere, _ := unspecified(a).Prefix(0)
		port.Routes = append(port.Routes, bridge.Route{Dst: everywhere, Gateway: ipam.Gateway(network)})
	}
	if err := attach(n.cfg.Host, pod, port); err != nil {
		return nil, err
	}
	if err := n.ports.Add(id, mappings(cfg), addrs); err != nil {
		return nil, err
	}
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
	addresses, err := n.leases(ctx)
	if err != nil {
		return err
	}
	if err := n.plugins.teardown(ctx, id); err != nil {
		return err
	}
	if !addresses.Has(id) {
		return nil
	}
	if err := errors.Join(n.ports.Remove(id), bridge.Detach(n.cfg.Host, vethName(id))); err != nil {
		return err // the lease stays as long as something may use the address
	}
	if err := addresses.Release(ctx, id); err != nil {
		return err
	}
	if n.now().moving() {
		n.poke() // it may have been the last one
	}
	return nil
}

// Ready returns nil, or why pods cannot get a network. Of the built-in network it
// repairs what it can while that is in use: bridge, nftables table and sysctls are
// made anew when they are missing. Before that it only looks.
func (n *Network) Ready() error {
	n.all.RLock()
	defer n.all.RUnlock()
	list, err := n.look()
	if list != nil || err != nil {
		return err
	}
	if !n.now().laid {
		return n.obstacle()
	}
	_, err = n.ensure()
	return errors.Join(err, n.admit())
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

// admit lets pods through firewalls that came after Reconcile, too.
func (n *Network) admit() error {
	changed, err := nft.Admit(n.cfg.Host, n.cfg.Bridge)
	for _, chain := range changed {
		n.cfg.Log.Info("let pods through a firewall that drops what is forwarded", "chain", chain)
	}
	return err
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

// ensured is ensure where that was not done just now, or the bridge is another one.
func (n *Network) ensured() (netlink.Link, error) {
	n.mu.Lock()
	found := n.found
	n.mu.Unlock()
	if age := time.Since(found.at); age >= 0 && age < ensureFresh {
		br, err := bridge.Find(n.cfg.Host, n.cfg.Bridge)
		if err == nil && br.Attrs().Index == found.index && br.Attrs().Flags&net.FlagUp != 0 {
			return br, nil
		}
	}
	return n.ensure()
}

// ensure makes sure of all that is common to pods, and returns the bridge.
func (n *Network) ensure() (netlink.Link, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c, ipv4, ipv6 := n.bridge()
	networks := slices.Clone(n.cidrs)
	c.Foreign = func(p netip.Prefix) bool { // of a former pod CIDR
		if n.addresses != nil && !n.addresses.Uses(p.Masked()) {
			return true
		}
		networks = append(networks, p.Masked())
		return false
	}
	n.laid, n.found = true, foundation{} // also when it fails half way
	br, err := bridge.Ensure(n.cfg.Host, c)
	if err != nil {
		return nil, err
	}
	if err := bridge.Forward(n.cfg.Host, ipv4, ipv6); err != nil {
		return nil, err
	}
	n.ports.SetNetworks(networks)
	if err := n.ports.Repair(); err != nil {
		return nil, err
	}
	n.found = foundation{br.Attrs().Index, time.Now()}
	return br, nil
}

// obstacle returns what of the node would keep ensure from its work.
func (n *Network) obstacle() error {
	n.mu.Lock()
	c, _, _ := n.bridge()
	n.mu.Unlock()
	return bridge.Obstacle(n.cfg.Host, c)
}

// bridge describes the bridge, and which families it has. The caller holds mu.
func (n *Network) bridge() (c bridge.Config, ipv4, ipv6 bool) {
	c = bridge.Config{Name: n.cfg.Bridge, Exclusive: true}
	for _, p := range n.cidrs {
		c.Addresses = append(c.Addresses, netip.PrefixFrom(ipam.Gateway(p), p.Bits()))
		ipv4, ipv6 = ipv4 || p.Addr().Is4(), ipv6 || p.Addr().Is6()
	}
	return c, ipv4, ipv6
}

// networkOf returns the pod CIDR of an address. The caller knows that it has one.
func (n *Network) networkOf(a netip.Addr) netip.Prefix {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cidrs[slices.IndexFunc(n.cidrs, func(p netip.Prefix) bool { return p.Contains(a) })].Masked()
}

func unspecified(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}
