package plugin

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
)

// addressPool is the configuration of host-local after defaults were applied and addresses were parsed.
type addressPool struct {
	network    string
	dir        string
	sets       []rangeSet // an attachment gets one address from each set
	routes     []*types.Route
	resolvConf string
	requested  []netip.Addr
}

// rangeSet is a set of ranges of one IP family. An attachment gets one address from the set.
type rangeSet []addrRange

type addrRange struct {
	subnet      netip.Prefix
	first, last netip.Addr // inclusive
	gateway     netip.Addr // never assigned
}

// rangeConf is a range in JSON.
type rangeConf struct {
	Subnet     string `json:"subnet"`
	RangeStart string `json:"rangeStart"`
	RangeEnd   string `json:"rangeEnd"`
	Gateway    string `json:"gateway"`
}

// maxRanges is the maximum number of ranges in a configuration.
const maxRanges = 256

func (c *pluginCall) parsePool() (*addressPool, error) {
	var conf struct {
		IPAM *struct {
			rangeConf
			Ranges     [][]rangeConf  `json:"ranges"`
			Routes     []*types.Route `json:"routes"`
			DataDir    string         `json:"dataDir"`
			ResolvConf string         `json:"resolvConf"`
		} `json:"ipam"`
		RuntimeConfig struct {
			IPRanges [][]rangeConf `json:"ipRanges"`
			IPs      []string      `json:"ips"`
		} `json:"runtimeConfig"`
		Args struct {
			CNI struct {
				IPs []string `json:"ips"`
			} `json:"cni"`
		} `json:"args"`
	}
	if err := json.Unmarshal(c.Args.StdinData, &conf); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "host-local: "+err.Error(), "")
	}
	if conf.IPAM == nil {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, "host-local: no ipam in the configuration", "")
	}
	if err := c.ipamFields(); err != nil {
		return nil, err
	}
	p := &addressPool{network: c.conf.Name, dir: conf.IPAM.DataDir, routes: conf.IPAM.Routes, resolvConf: conf.IPAM.ResolvConf}
	if p.dir == "" {
		p.dir = hostLocalDir
	}
	if p.network == "" || p.network != filepath.Base(p.network) || strings.Trim(p.network, ".") == "" {
		return nil, types.NewError(types.ErrInvalidNetworkConfig,
			fmt.Sprintf("host-local: network name %q cannot be a directory", p.network), "")
	}
	sets := conf.RuntimeConfig.IPRanges
	if conf.IPAM.Subnet != "" {
		sets = append(sets, []rangeConf{conf.IPAM.rangeConf})
	}
	if err := p.resolveSets(append(sets, conf.IPAM.Ranges...)); err != nil {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, "host-local: "+err.Error(), "")
	}
	return p, p.recordRequested(append(conf.Args.CNI.IPs, conf.RuntimeConfig.IPs...), c.Args.Args)
}

func (c *pluginCall) ipamFields() error {
	var conf struct {
		IPAM map[string]json.RawMessage `json:"ipam"`
	}
	if err := json.Unmarshal(c.Args.StdinData, &conf); err != nil {
		return types.NewError(types.ErrDecodingFailure, "host-local: "+err.Error(), "")
	}
	supported := " type subnet rangeStart rangeEnd gateway ranges routes dataDir resolvConf "
	for key, value := range conf.IPAM {
		if !strings.Contains(supported, " "+key+" ") && !strings.Contains(key, "/") && !isEmpty(value) {
			return types.NewError(types.ErrUnsupportedField,
				fmt.Sprintf("host-local: field %q of ipam is not supported by the built-in plugin", key), "")
		}
	}
	return nil
}

func (p *addressPool) resolveSets(sets [][]rangeConf) error {
	if len(sets) == 0 {
		return fmt.Errorf("no range of addresses")
	}
	var all []addrRange
	for i, confs := range sets {
		if len(confs) == 0 || len(all)+len(confs) > maxRanges {
			return fmt.Errorf("range set %d: empty, or more than %d ranges", i, maxRanges)
		}
		var set rangeSet
		for _, conf := range confs {
			r, err := conf.toRange()
			if err != nil {
				return fmt.Errorf("range set %d: %w", i, err)
			}
			if len(set) > 0 && set[0].first.Is4() != r.first.Is4() {
				return fmt.Errorf("range set %d mixes IPv4 and IPv6", i)
			}
			for _, other := range all {
				if r.first.Is4() == other.first.Is4() && !r.last.Less(other.first) && !other.last.Less(r.first) {
					return fmt.Errorf("range %s-%s overlaps with another", r.first, r.last)
				}
			}
			set, all = append(set, r), append(all, r)
		}
		p.sets = append(p.sets, set)
	}
	return nil
}

func (conf rangeConf) toRange() (addrRange, error) {
	subnet, err := netip.ParsePrefix(conf.Subnet)
	if err != nil {
		return addrRange{}, fmt.Errorf("subnet %q: %w", conf.Subnet, err)
	}
	if subnet.Addr().Is4In6() || subnet != subnet.Masked() || subnet.Bits() > subnet.Addr().BitLen()-2 {
		return addrRange{}, fmt.Errorf("subnet %s has host bits, or no room for two addresses", subnet)
	}
	r := addrRange{subnet: subnet, first: subnet.Addr().Next(), last: lastUsable(subnet), gateway: subnet.Addr().Next()}
	for _, f := range []struct {
		name, text string
		to         *netip.Addr
	}{{"gateway", conf.Gateway, &r.gateway}, {"rangeStart", conf.RangeStart, &r.first}, {"rangeEnd", conf.RangeEnd, &r.last}} {
		if f.text == "" {
			continue
		}
		a, err := netip.ParseAddr(f.text)
		if err != nil {
			return r, fmt.Errorf("%s: %w", f.name, err)
		}
		*f.to = a.Unmap()
		if f.name != "gateway" && !subnet.Contains(*f.to) {
			return r, fmt.Errorf("%s %s is not in %s", f.name, a, subnet)
		}
	}
	if r.last.Less(r.first) {
		return r, fmt.Errorf("range %s-%s is empty", r.first, r.last)
	}
	return r, nil
}

// lastUsable returns the last assignable address of a subnet. In IPv4 it is the address before the broadcast address.
func lastUsable(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(b)*8; bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(b)
	if last.Is4() {
		return last.Prev()
	}
	return last
}

// recordRequested records the addresses that the caller requests, which may be in three places of the request.
func (p *addressPool) recordRequested(ips []string, cniArgs string) error {
	for pair := range strings.SplitSeq(cniArgs, ";") {
		if key, value, _ := strings.Cut(pair, "="); key == "IP" && value != "" {
			ips = append(ips, value)
		}
	}
	for _, text := range ips {
		text, _, _ = strings.Cut(text, "/") // ignores a requested prefix length; the result has the prefix length of the subnet
		a, err := netip.ParseAddr(text)
		if err != nil {
			return types.NewError(types.ErrInvalidNetworkConfig, fmt.Sprintf("host-local: requested address %q: %v", text, err), "")
		}
		p.requested = append(p.requested, a.Unmap())
	}
	return nil
}

func (set rangeSet) rangeOf(a netip.Addr) *addrRange {
	for i, r := range set {
		if r.first.Is4() == a.Is4() && !a.Less(r.first) && !r.last.Less(a) {
			return &set[i]
		}
	}
	return nil
}

// nextAfter returns the next address in cyclic order, and its range. If no range contains the given address, it returns the first address
// of the set.
func (set rangeSet) nextAfter(at int, a netip.Addr) (int, netip.Addr) {
	for i := range set {
		r := set[(at+i)%len(set)]
		if a.IsValid() && r.first.Is4() == a.Is4() && !a.Less(r.first) && !r.last.Less(a) {
			if a.Less(r.last) {
				return (at + i) % len(set), a.Next()
			}
			next := (at + i + 1) % len(set)
			return next, set[next].first
		}
	}
	return 0, set[0].first
}

// readResolvConf reads the DNS part of a result from a resolv.conf file.
func readResolvConf(path string) (dns types.DNS, err error) {
	f, err := os.Open(path)
	if err != nil {
		return dns, fmt.Errorf("host-local: resolvConf: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(io.LimitReader(f, 64<<10))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "nameserver":
			dns.Nameservers = append(dns.Nameservers, fields[1])
		case "domain":
			dns.Domain = fields[1]
		case "search":
			dns.Search = append(dns.Search, fields[1:]...)
		case "options":
			dns.Options = append(dns.Options, fields[1:]...)
		}
	}
	if err := lines.Err(); err != nil {
		return dns, fmt.Errorf("host-local: resolvConf: %w", err)
	}
	return dns, nil
}
