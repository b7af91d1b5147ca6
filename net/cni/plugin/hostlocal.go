package plugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/plugins/ipam/host-local/backend/disk"
)

// hostLocalDir is the default lease directory. The upstream plugin host-local has the same default.
const hostLocalDir = "/var/lib/cni/networks"

func hostLocalActions() pluginActions {
	// An IPAM plugin receives the whole configuration of the plugin that calls it, so every field is allowed.
	return pluginActions{
		fields: "*", add: hostLocalAdd, del: hostLocalDel,
		check: hostLocalCheck, gc: hostLocalGC, status: hostLocalStatus,
	}
}

// withLeases locks the lease directory of the network while the caller's function uses it. The directory has the format of the upstream
// plugin: a file for each leased address, and a file for each range set with the last assigned address.
func withLeases(c *pluginCall, use func(p *addressPool, s *disk.Store) error) error {
	p, err := c.parsePool()
	if err != nil {
		return err
	}
	s, err := disk.New(p.network, p.dir)
	if err != nil {
		return types.NewError(types.ErrIOFailure, "host-local: "+err.Error(), "")
	}
	defer s.Close()
	if err := s.Lock(); err != nil {
		return fmt.Errorf("host-local: lock leases: %w", err)
	}
	defer s.Unlock()
	return use(p, s)
}

func hostLocalAdd(_ context.Context, c *pluginCall) (result *current.Result, err error) {
	err = withLeases(c, func(p *addressPool, s *disk.Store) (err error) {
		result, err = p.assignAddresses(c, s)
		return err
	})
	return result, err
}

// assignAddresses reserves an address from each range set.
func (p *addressPool) assignAddresses(c *pluginCall, s *disk.Store) (*current.Result, error) {
	result := &current.Result{CNIVersion: current.ImplementedSpecVersion, Routes: p.routes}
	if p.resolvConf != "" {
		var err error
		if result.DNS, err = readResolvConf(p.resolvConf); err != nil {
			return nil, err
		}
	}
	if existing := s.GetByID(c.Args.ContainerID, c.Args.IfName); len(existing) > 0 { // the specification requires an error
		return nil, fmt.Errorf("host-local: %s already has the address %s", c.Args.ContainerID, existing[0])
	}
	requested := slices.Clone(p.requested)
	for i, set := range p.sets {
		var want netip.Addr
		if at := slices.IndexFunc(requested, func(a netip.Addr) bool { return set.rangeOf(a) != nil }); at >= 0 {
			want = requested[at]
			requested = slices.Delete(requested, at, at+1)
		}
		ip, err := set.reserveAddress(leases{s, filepath.Join(p.dir, p.network)}, fmt.Sprint(i), c.Args.ContainerID, c.Args.IfName, want)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("host-local: range set %d: %w", i, err),
				s.ReleaseByID(c.Args.ContainerID, c.Args.IfName))
		}
		result.IPs = append(result.IPs, ip)
	}
	if len(requested) > 0 {
		return nil, errors.Join(fmt.Errorf("host-local: requested addresses %v are in no range", requested),
			s.ReleaseByID(c.Args.ContainerID, c.Args.IfName))
	}
	return result, nil
}

// reserveAddress reserves the requested address. If no address is requested, it reserves the next free address in cyclic order. The caller
// holds the lock of the directory.
func (set rangeSet) reserveAddress(s leases, id, container, ifname string, want netip.Addr) (*current.IPConfig, error) {
	if want.IsValid() {
		r := set.rangeOf(want)
		if want == r.gateway {
			return nil, fmt.Errorf("requested address %s is the gateway", want)
		}
		ok, err := s.Reserve(container, ifname, want.AsSlice(), id)
		if err == nil && !ok {
			err = fmt.Errorf("requested address %s is taken", want)
		}
		return r.ipConfig(want), err
	}
	var last netip.Addr
	if ip, err := s.LastReservedIP(id); err == nil {
		last, _ = netip.AddrFromSlice(ip)
		last = last.Unmap()
	}
	at, addr := set.nextAfter(0, last)
	for n, first := 0, addr; n == 0 || addr != first; n++ {
		r := set[at]
		if addr != r.gateway {
			ok, err := s.Reserve(container, ifname, addr.AsSlice(), id)
			if err != nil {
				return nil, err
			}
			if ok {
				return r.ipConfig(addr), nil
			}
		}
		at, addr = set.nextAfter(at, addr)
	}
	return nil, errors.New("all addresses are taken")
}

// leases is the locked lease directory of a network.
type leases struct {
	*disk.Store
	dir string
}

// Reserve leases an address like disk.Store.Reserve. In addition, it leases an address whose lease file names no owner. The lease files are
// not synced, so a power cut soon after a lease can leave an empty file. DEL finds the files of a sandbox by their content, so it would
// never release the address of an empty file.
func (l leases) Reserve(id, ifname string, ip net.IP, set string) (bool, error) {
	ok, err := l.Store.Reserve(id, ifname, ip, set)
	if ok || err != nil {
		return ok, err
	}
	file := disk.GetEscapedPath(l.dir, ip.String())
	content, err := os.ReadFile(file)
	if err != nil || strings.Trim(string(content), "\x00\r\n ") != "" {
		return false, err
	}
	if err := os.Remove(file); err != nil {
		return false, err
	}
	return l.Store.Reserve(id, ifname, ip, set)
}

func (r addrRange) ipConfig(a netip.Addr) *current.IPConfig {
	ip := &current.IPConfig{Address: net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(r.subnet.Bits(), a.BitLen())}}
	if r.gateway.IsValid() {
		ip.Gateway = r.gateway.AsSlice()
	}
	return ip
}

func hostLocalDel(_ context.Context, c *pluginCall) error {
	return withLeases(c, func(_ *addressPool, s *disk.Store) error { return s.ReleaseByID(c.Args.ContainerID, c.Args.IfName) })
}

func hostLocalCheck(_ context.Context, c *pluginCall) error {
	return withLeases(c, func(_ *addressPool, s *disk.Store) error {
		if len(s.GetByID(c.Args.ContainerID, c.Args.IfName)) == 0 {
			return fmt.Errorf("host-local: %s has no address", c.Args.ContainerID)
		}
		return nil
	})
}

func hostLocalGC(_ context.Context, c *pluginCall) error {
	return withLeases(c, func(p *addressPool, _ *disk.Store) error { return p.freeInvalid(c) })
}

// freeInvalid frees the addresses of attachments that are no longer valid.
func (p *addressPool) freeInvalid(c *pluginCall) error {
	valid := map[types.GCAttachment]bool{}
	for _, a := range c.conf.ValidAttachments {
		valid[a] = true
	}
	dir := filepath.Join(p.dir, p.network)
	files, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("host-local: %w", err)
	}
	for _, f := range files {
		if _, err := netip.ParseAddr(f.Name()); err != nil {
			continue // the lock file, or a file with a last assigned address
		}
		content, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return fmt.Errorf("host-local: %w", err)
		}
		id, ifname, _ := strings.Cut(strings.TrimSpace(string(content)), disk.LineBreak)
		if !valid[types.GCAttachment{ContainerID: id, IfName: ifname}] {
			if err := os.Remove(filepath.Join(dir, f.Name())); err != nil {
				return fmt.Errorf("host-local: %w", err)
			}
		}
	}
	return nil
}

func hostLocalStatus(_ context.Context, c *pluginCall) error {
	return withLeases(c, func(*addressPool, *disk.Store) error { return nil })
}
