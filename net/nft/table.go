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

// Table is the content of the two tables with one name, for IPv4 and IPv6.
type Table struct {
	Name       string
	Masquerade []Source       // prefixes whose connections to other networks are masqueraded
	Local      []netip.Prefix // pod networks of this node, which are not masquerade destinations
	Ports      []Port
}

// Source is a prefix whose connections to other networks are masqueraded, with its owner.
type Source struct {
	Owner  string
	Prefix netip.Prefix
}

// A Port is a port of the node that is forwarded to a pod.
type Port struct {
	Owner    string
	Protocol uint8      // IPPROTO_TCP, _UDP or _SCTP
	HostIP   netip.Addr // an invalid or unspecified address means all addresses of the node
	HostPort uint16
	To       netip.AddrPort
}

// anyAddress reports whether the port is open on all addresses of the node.
func (p Port) anyAddress() bool { return !p.HostIP.IsValid() || p.HostIP.IsUnspecified() }

// inFamily reports whether the table of a family contains the port. The pod's address must be of that family. If a HostIP is set, it must
// be of that family, too.
func (p Port) inFamily(f ipFamily) bool {
	return f.contains(p.To.Addr()) && (p.anyAddress() || f.contains(p.HostIP))
}

// openConn opens a netlink connection to nf_tables in the namespace. It has one socket for all requests: without AsLasting, the library
// opens a socket for each. After an error of Flush, the connection must not be used again, because results may be left in the socket.
func openConn(ns netns.NS) (*nftables.Conn, func(), error) {
	buffers := func(c *netlink.Conn) error {
		ns.CountSocket()
		// The kernel acknowledges every message, so the buffers need room for many replies. After an error, the buffers keep their default
		// size.
		_ = c.SetReadBuffer(1 << 20)
		_ = c.SetWriteBuffer(1 << 20)
		return nil
	}
	options := []nftables.ConnOption{nftables.AsLasting(), nftables.WithSockOptions(buffers)}
	if !ns.IsOwn() {
		f, err := ns.Open()
		if err != nil {
			return nil, nil, err
		}
		defer f.Close() // the socket stays in the namespace
		options = append(options, nftables.WithNetNSFd(int(f.Fd())))
	}
	c, err := nftables.New(options...)
	if err != nil {
		return nil, nil, fmt.Errorf("open nftables socket: %w", err)
	}
	return c, func() { _ = c.CloseLasting() }, nil
}

// Replace replaces the tables with the given content, in one transaction. If there is no content for an IP family, it removes the table of
// that family.
func Replace(ns netns.NS, t Table) error {
	err := sendBatch(ns, t.Name, func(b builder) error {
		part := t.forFamily(b.family)
		if !part.isEmpty() {
			return b.rebuildTable(part)
		}
		if found, _ := tableExists(b.conn, b.table); found {
			b.conn.DelTable(b.table)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("write nftables table %s (the kernel needs nf_tables with nat, masq, fib and ct): %w", t.Name, err)
	}
	return nil
}

// UpdateTables changes the content of existing tables. The caller must pass their current content. UpdateTables writes only the difference,
// in one transaction, which is a hundred times faster than Replace. If the write fails, it calls Replace.
func UpdateTables(ns netns.NS, from, to Table) error {
	var differs bool
	for _, f := range []ipFamily{ip4, ip6} {
		differs = differs || from.forFamily(f).isEmpty() != to.forFamily(f).isEmpty()
	}
	if !differs {
		err := sendBatch(ns, to.Name, func(b builder) error {
			return b.changeElements(from.forFamily(b.family), to.forFamily(b.family))
		})
		if err == nil {
			return nil
		}
	}
	return Replace(ns, to)
}

// SwapPorts removes some ports from existing tables and adds others, in one transaction. It does not check the rest of the tables.
func SwapPorts(ns netns.NS, name string, removed, added []Port) error {
	return sendBatch(ns, name, func(b builder) error {
		from, to := Table{Ports: removed}.forFamily(b.family), Table{Ports: added}.forFamily(b.family)
		if from.isEmpty() && to.isEmpty() {
			return nil
		}
		return b.changeElements(from, to)
	})
}

// sendBatch sends one batch of messages. The caller's function adds the messages for an IP family to the batch.
func sendBatch(ns netns.NS, name string, f func(builder) error) error {
	c, done, err := openConn(ns)
	if err != nil {
		return err
	}
	defer done()
	for _, fam := range []ipFamily{ip4, ip6} {
		if err := f(builder{conn: c, table: &nftables.Table{Name: name, Family: fam.nft}, family: fam}); err != nil {
			return err
		}
	}
	return c.Flush()
}

// Remove deletes the tables with the given name.
func Remove(ns netns.NS, name string) error { return Replace(ns, Table{Name: name}) }

// Exists reports whether the kernel has the tables. A family without content needs no table. Exists does not check the content.
func Exists(ns netns.NS, t Table) (bool, error) {
	c, done, err := openConn(ns)
	if err != nil {
		return false, err
	}
	defer done()
	for _, f := range []ipFamily{ip4, ip6} {
		if t.forFamily(f).isEmpty() {
			continue
		}
		if found, err := tableExists(c, &nftables.Table{Name: t.Name, Family: f.nft}); !found || err != nil {
			return false, err
		}
	}
	return true, nil
}

func tableExists(c *nftables.Conn, t *nftables.Table) (bool, error) {
	_, err := c.ListTableOfFamily(t.Name, t.Family)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// forFamily returns the part of the content that belongs to an IP family.
func (t Table) forFamily(f ipFamily) Table {
	foreign := func(p netip.Prefix) bool { return !f.contains(p.Addr()) }
	return Table{
		Name:       t.Name,
		Masquerade: slices.DeleteFunc(slices.Clone(t.Masquerade), func(s Source) bool { return foreign(s.Prefix) }),
		Local:      slices.DeleteFunc(slices.Clone(t.Local), foreign),
		Ports:      slices.DeleteFunc(slices.Clone(t.Ports), func(p Port) bool { return !p.inFamily(f) }),
	}
}

func (t Table) isEmpty() bool { return len(t.Masquerade)+len(t.Local)+len(t.Ports) == 0 }
