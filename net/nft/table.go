package nft

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/islet-edge/islet/net/netns"
	"github.com/mdlayher/netlink"
)

// Table is the content of the tables of one name, for both families.
type Table struct {
	Name       string
	Masquerade []Source       // whose traffic to the outside gets the node's address
	Local      []netip.Prefix // pod networks of this node: no masquerade towards them
	Ports      []Port
}

// Source is a prefix to masquerade.
type Source struct {
	Owner  string
	Prefix netip.Prefix
}

// Port forwards a port of the node to a pod.
type Port struct {
	Owner    string
	Protocol uint8      // IPPROTO_TCP, _UDP or _SCTP
	HostIP   netip.Addr // not valid or unspecified: all addresses of the node
	HostPort uint16
	To       netip.AddrPort
}

// anyAddress says whether the port is open on all addresses of the node.
func (p Port) anyAddress() bool { return !p.HostIP.IsValid() || p.HostIP.IsUnspecified() }

// serves says whether the port belongs to a family: that of its pod address, and
// not that of a foreign HostIP.
func (p Port) serves(f family) bool {
	return f.has(p.To.Addr()) && (p.anyAddress() || f.has(p.HostIP))
}

// conn opens a connection to nf_tables in the namespace, for one batch.
func conn(ns netns.NS) (*nftables.Conn, func(), error) {
	f, err := ns.Open()
	if err != nil {
		return nil, nil, err
	}
	buffers := func(c *netlink.Conn) error {
		// Each message is acknowledged: room for all answers. Not fatal where refused.
		_ = c.SetReadBuffer(1 << 20)
		_ = c.SetWriteBuffer(1 << 20)
		return nil
	}
	c, err := nftables.New(nftables.WithNetNSFd(int(f.Fd())), nftables.WithSockOptions(buffers))
	if err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("open nftables socket: %w", err)
	}
	return c, func() { f.Close() }, nil
}

// Replace makes the tables of t.Name hold exactly t, in one transaction, and
// trusts nothing of what is there. A family of which t has nothing has no table
// afterwards.
func Replace(ns netns.NS, t Table) error {
	err := write(ns, t.Name, func(b builder) error {
		part := t.of(b.family)
		if !part.empty() {
			return b.rebuild(part)
		}
		if there, _ := exists(b.conn, b.table); there {
			b.conn.DelTable(b.table)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("write nftables table %s (the kernel needs nf_tables with nat, masq, fib and ct): %w", t.Name, err)
	}
	return nil
}

// Change is Replace when it is known that the tables hold what Replace made of
// from: only the difference is written, in one transaction too. That is a hundred
// times faster, as chains and rules are the same for any content.
func Change(ns netns.NS, from, to Table) error {
	var made bool
	for _, f := range []family{ip4, ip6} {
		made = made || from.of(f).empty() != to.of(f).empty()
	}
	if !made && write(ns, to.Name, func(b builder) error { return b.change(from.of(b.family), to.of(b.family)) }) == nil {
		return nil
	}
	return Replace(ns, to) // or something is missing after all
}

// SwapPorts takes some ports out of tables that are there and puts others in, in one
// transaction. Nothing else of the tables is looked at.
func SwapPorts(ns netns.NS, name string, gone, fresh []Port) error {
	return write(ns, name, func(b builder) error {
		from, to := Table{Ports: gone}.of(b.family), Table{Ports: fresh}.of(b.family)
		if from.empty() && to.empty() {
			return nil
		}
		return b.change(from, to)
	})
}

// write sends what f adds to the batch for each family.
func write(ns netns.NS, name string, f func(builder) error) error {
	c, done, err := conn(ns)
	if err != nil {
		return err
	}
	defer done()
	for _, fam := range []family{ip4, ip6} {
		if err := f(builder{conn: c, table: &nftables.Table{Name: name, Family: fam.nft}, family: fam}); err != nil {
			return err
		}
	}
	return c.Flush()
}

// Remove deletes the tables.
func Remove(ns netns.NS, name string) error { return Replace(ns, Table{Name: name}) }

// Exists says whether the tables that t needs are there. Their content is not
// looked at.
func Exists(ns netns.NS, t Table) (bool, error) {
	c, done, err := conn(ns)
	if err != nil {
		return false, err
	}
	defer done()
	for _, f := range []family{ip4, ip6} {
		if t.of(f).empty() {
			continue
		}
		if there, err := exists(c, &nftables.Table{Name: t.Name, Family: f.nft}); !there || err != nil {
			return false, err
		}
	}
	return true, nil
}

func exists(c *nftables.Conn, t *nftables.Table) (bool, error) {
	_, err := c.ListTableOfFamily(t.Name, t.Family)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// of returns the part of t that concerns a family.
func (t Table) of(f family) Table {
	foreign := func(p netip.Prefix) bool { return !f.has(p.Addr()) }
	return Table{
		Name:       t.Name,
		Masquerade: slices.DeleteFunc(slices.Clone(t.Masquerade), func(s Source) bool { return foreign(s.Prefix) }),
		Local:      slices.DeleteFunc(slices.Clone(t.Local), foreign),
		Ports:      slices.DeleteFunc(slices.Clone(t.Ports), func(p Port) bool { return !p.serves(f) }),
	}
}

func (t Table) empty() bool { return len(t.Masquerade)+len(t.Local)+len(t.Ports) == 0 }
