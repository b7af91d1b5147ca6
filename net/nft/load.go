package nft

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/islet-edge/islet/net/netns"
	"golang.org/x/sys/unix"
)

// Update loads the tables with the given name from the kernel, lets the caller's function change them, and writes the difference. It locks
// the file of the namespace, so that no other process updates the tables at the same time.
func Update(ns netns.NS, name string, change func(*Table)) error {
	lock, err := ns.Open()
	if err != nil {
		return err
	}
	defer lock.Close() // closing the file releases the lock
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock network namespace: %w", err)
	}
	current, err := Load(ns, name)
	if err != nil {
		return err
	}
	t := Table{
		Name: name, Masquerade: slices.Clone(current.Masquerade),
		Local: slices.Clone(current.Local), Ports: slices.Clone(current.Ports),
	}
	change(&t)
	t.dropUnusedNetworks()
	return UpdateTables(ns, current, t)
}

// Load reads the tables that Replace has written. It treats a missing table as empty.
func Load(ns netns.NS, name string) (Table, error) {
	t := Table{Name: name}
	c, done, err := openConn(ns)
	if err != nil {
		return t, err
	}
	defer done()
	for _, f := range []ipFamily{ip4, ip6} {
		table := &nftables.Table{Name: name, Family: f.nft}
		if found, err := tableExists(c, table); err != nil || !found {
			if err != nil && f.addressWords == 1 {
				return t, fmt.Errorf("read nftables table %s: %w", name, err)
			}
			continue // a kernel without IPv6 has no table
		}
		if err := t.load(c, table, f); err != nil {
			return t, fmt.Errorf("read nftables table %s: %w", name, err)
		}
	}
	return t, nil
}

func (t *Table) load(c *nftables.Conn, table *nftables.Table, f ipFamily) error {
	elements := map[string][]nftables.SetElement{}
	for _, set := range []string{"masquerade", "local", "by_address", "by_port"} {
		found, err := c.GetSetElements(&nftables.Set{Table: table, Name: set})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("set %s: %w", set, err)
		}
		elements[set] = found
	}
	for _, e := range elements["masquerade"] {
		if p, owner, ok := parseComment(e); ok {
			t.Masquerade = append(t.Masquerade, Source{Owner: owner, Prefix: p})
		}
	}
	for _, e := range elements["local"] {
		if p, _, ok := parseComment(e); ok {
			t.Local = append(t.Local, p)
		}
	}
	n := int(4 * f.addressWords)
	for _, e := range append(elements["by_address"], elements["by_port"]...) {
		p := Port{Owner: e.Comment}
		key := e.Key
		if len(key) == n+8 {
			p.HostIP, _ = netip.AddrFromSlice(key[:n])
			key = key[n:]
		}
		to, ok := netip.AddrFromSlice(e.Val[:min(n, len(e.Val))])
		if len(key) != 8 || len(e.Val) != n+4 || !ok {
			continue
		}
		p.Protocol, p.HostPort = key[0], be16(key[4:])
		p.To = netip.AddrPortFrom(to, be16(e.Val[n:]))
		t.Ports = append(t.Ports, p)
	}
	return nil
}

func be16(b []byte) uint16 { return uint16(b[0])<<8 | uint16(b[1]) }

// parseComment parses the comment of an element in a set of prefixes.
func parseComment(e nftables.SetElement) (netip.Prefix, string, bool) {
	text, owner, ok := strings.Cut(e.Comment, " ")
	p, err := netip.ParsePrefix(text)
	return p, owner, ok && err == nil && !e.IntervalEnd
}

// dropUnusedNetworks removes each local network that contains neither a masqueraded source nor the pod address of a port.
func (t *Table) dropUnusedNetworks() {
	t.Local = slices.DeleteFunc(t.Local, func(p netip.Prefix) bool {
		return !slices.ContainsFunc(t.Masquerade, func(s Source) bool { return p.Contains(s.Prefix.Addr()) }) &&
			!slices.ContainsFunc(t.Ports, func(q Port) bool { return p.Contains(q.To.Addr()) })
	})
}

// RemoveOwners removes the entries of each matching owner.
func (t *Table) RemoveOwners(match func(owner string) bool) {
	t.Masquerade = slices.DeleteFunc(t.Masquerade, func(s Source) bool { return match(s.Owner) })
	t.Ports = slices.DeleteFunc(t.Ports, func(p Port) bool { return match(p.Owner) })
}
