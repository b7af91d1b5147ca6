package nft

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// hostPortMark is the mark of the first packet of a connection to a host port. The postrouting chain matches packets with this mark. CNI's
// portmap plugin uses the same bit.
const hostPortMark = 0x2000

// elementsPerMessage is the maximum number of set elements in a message. With this number, the list is smaller than 64 KiB, the maximum
// size of a netlink attribute.
const elementsPerMessage = 256

// ipFamily contains the values in which the tables for IPv4 and IPv6 differ.
type ipFamily struct {
	nft          nftables.TableFamily
	proto        uint32 // NFPROTO
	address      nftables.SetDatatype
	addressWords uint32 // 32-bit registers of an address
	source, dest uint32 // offsets in the IP header
	loopback     netip.Prefix
	multicast    netip.Prefix
}

var (
	ip4 = ipFamily{
		nft: nftables.TableFamilyIPv4, proto: unix.NFPROTO_IPV4, address: nftables.TypeIPAddr, addressWords: 1, source: 12, dest: 16,
		loopback: netip.MustParsePrefix("127.0.0.0/8"), multicast: netip.MustParsePrefix("224.0.0.0/4"),
	}
	ip6 = ipFamily{
		nft: nftables.TableFamilyIPv6, proto: unix.NFPROTO_IPV6, address: nftables.TypeIP6Addr, addressWords: 4, source: 8, dest: 24,
		loopback: netip.MustParsePrefix("::1/128"), multicast: netip.MustParsePrefix("ff00::/8"),
	}
)

// contains reports whether an address is a valid address of the IP family.
func (f ipFamily) contains(a netip.Addr) bool { return a.Is4() == (f.addressWords == 1) && a.IsValid() }

// builder adds the messages for the table of one IP family to a batch.
type builder struct {
	conn   *nftables.Conn
	table  *nftables.Table
	family ipFamily
}

// tableSets contains the sets and maps of a table. All variable data of a table are in its sets, so chains and rules never change.
type tableSets struct{ masquerade, local, byAddress, byPort *nftables.Set }

// newSets returns the sets and maps of the table with their IDs. It does not add messages to the batch.
func (b builder) newSets() tableSets {
	address, proto, port := b.family.address, nftables.TypeInetProto, nftables.TypeInetService
	value := nftables.MustConcatSetType(address, port)
	s := tableSets{
		masquerade: &nftables.Set{Name: "masquerade", KeyType: address, Interval: true},
		local:      &nftables.Set{Name: "local", KeyType: address, Interval: true},
		byAddress: &nftables.Set{
			Name: "by_address", IsMap: true, KeyType: nftables.MustConcatSetType(address, proto, port), DataType: value,
		},
		byPort: &nftables.Set{Name: "by_port", IsMap: true, KeyType: nftables.MustConcatSetType(proto, port), DataType: value},
	}
	for i, set := range s.list() {
		// Assign the IDs here, because the library's counter is not safe for concurrent use. An ID must be unique only within its batch.
		set.Table, set.ID = b.table, uint32(i+1)+16*b.family.proto
	}
	return s
}

func (s tableSets) list() []*nftables.Set {
	return []*nftables.Set{s.masquerade, s.local, s.byAddress, s.byPort}
}

// rebuildTable deletes the table and creates it with new content.
func (b builder) rebuildTable(t Table) error {
	b.conn.AddTable(b.table) // needed because DelTable fails if the table does not exist
	b.conn.DelTable(b.table)
	b.conn.AddTable(b.table)
	s := b.newSets()
	for _, set := range s.list() {
		if err := b.conn.AddSet(set, nil); err != nil {
			return err
		}
	}
	for i, elements := range setElements(t) {
		if err := b.inChunks(s.list()[i], elements, b.conn.SetAddElements); err != nil {
			return err
		}
	}
	b.addChains(s)
	return nil
}

// changeElements adds and deletes elements of the sets of an existing table.
func (b builder) changeElements(from, to Table) error {
	old, now := setElements(from), setElements(to)
	for i, set := range b.newSets().list() {
		set.ID = 0 // IDs refer only to sets of the same batch
		if err := b.inChunks(set, subtractElements(old[i], now[i]), b.conn.SetDeleteElements); err != nil {
			return err
		}
		if err := b.inChunks(set, subtractElements(now[i], old[i]), b.conn.SetAddElements); err != nil {
			return err
		}
	}
	return nil
}

// subtractElements returns the elements of list a that are not in list b.
func subtractElements(a, b []nftables.SetElement) []nftables.SetElement {
	key := func(e nftables.SetElement) string {
		return fmt.Sprintf("%x %x %t %s", e.Key, e.Val, e.IntervalEnd, e.Comment)
	}
	inB := make(map[string]bool, len(b))
	for _, e := range b {
		inB[key(e)] = true
	}
	return slices.DeleteFunc(slices.Clone(a), func(e nftables.SetElement) bool { return inB[key(e)] })
}

// inChunks splits the elements into chunks of at most elementsPerMessage, and passes each chunk to the caller's function.
func (b builder) inChunks(
	set *nftables.Set, elements []nftables.SetElement, do func(*nftables.Set, []nftables.SetElement) error,
) error {
	for chunk := range slices.Chunk(elements, elementsPerMessage) {
		if err := do(set, chunk); err != nil {
			return err
		}
	}
	return nil
}

// setElements returns the elements of the sets of a table, in the order of sets.list.
func setElements(t Table) [4][]nftables.SetElement {
	networks := make([]Source, len(t.Local))
	for i, p := range t.Local {
		networks[i].Prefix = p
	}
	addressed, others := portElements(t.Ports)
	return [4][]nftables.SetElement{prefixElements(t.Masquerade), prefixElements(networks), addressed, others}
}

func (b builder) addBaseChain(
	name string, kind nftables.ChainType, hook *nftables.ChainHook, priority *nftables.ChainPriority,
) *nftables.Chain {
	return b.conn.AddChain(&nftables.Chain{Name: name, Table: b.table, Type: kind, Hooknum: hook, Priority: priority})
}

func (b builder) addRule(chain *nftables.Chain, exprs ...expr.Any) {
	b.conn.AddRule(&nftables.Rule{Table: b.table, Chain: chain, Exprs: exprs})
}
