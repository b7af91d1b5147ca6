package nft

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/sorting"
)

// hostPortMark is the mark of the first packet of a connection to a host port. The postrouting chain matches packets with this mark. CNI's
// portmap plugin uses the same bit.
const hostPortMark = 0x2000

// These are the first registers of keys, values and marks. The key of a set occupies one 32-bit register for each 4 bytes, starting at
// keyRegister. The value of a map element is loaded into the registers from valueRegister on.
const (
	keyRegister   = unix.NFT_REG32_00
	valueRegister = unix.NFT_REG32_08
	markRegister  = unix.NFT_REG32_14
)

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

func (f ipFamily) contains(a netip.Addr) bool { return a.Is4() == (f.addressWords == 1) && a.IsValid() }

// builder adds the messages for the table of one IP family to a batch.
type builder struct {
	conn   *nftables.Conn
	table  *nftables.Table
	family ipFamily
}

// tableSets contains the sets and maps of a table. All variable data of a table are in its sets, so chains and rules never change.
type tableSets struct{ masquerade, local, byAddress, byPort *nftables.Set }

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

// prefixElements returns the elements for a set of prefixes. Elements of a set must not overlap, so a prefix inside another prefix is
// omitted. The comment of an element contains the prefix and its owner, for Load.
func prefixElements(sources []Source) []nftables.SetElement {
	sorted := slices.Clone(sources)
	for i, s := range sorted {
		sorted[i].Prefix = s.Prefix.Masked()
	}
	sorting.By(sorted, func(a, b Source) int { return a.Prefix.Compare(b.Prefix) }) // a prefix sorts before the prefixes that it contains
	var elements []nftables.SetElement
	var last netip.Prefix
	for _, s := range sorted {
		if last.IsValid() && last.Contains(s.Prefix.Addr()) {
			continue
		}
		last = s.Prefix
		elements = append(elements, nftables.SetElement{Key: last.Addr().AsSlice(), Comment: last.String() + " " + s.Owner})
		if end := addressAfter(last); end.IsValid() {
			elements = append(elements, nftables.SetElement{Key: end.AsSlice(), IntervalEnd: true})
		}
	}
	return elements
}

// addressAfter returns the first address after a prefix. It returns an invalid address at the end of the address space.
func addressAfter(p netip.Prefix) netip.Addr {
	a := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(a)*8; bit++ {
		a[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(a)
	return last.Next()
}

// portElements returns the elements for the two maps of host ports: ports on one address of the node, and ports on all addresses. If
// several ports have the same key, only the first one gets an element.
func portElements(ports []Port) (addressed, others []nftables.SetElement) {
	seen := map[string]bool{}
	for _, p := range ports {
		key := slices.Concat(word8(p.Protocol), word16(p.HostPort))
		list := &others
		if !p.anyAddress() {
			key = slices.Concat(p.HostIP.AsSlice(), key)
			list = &addressed
		}
		if seen[string(key)] {
			continue
		}
		seen[string(key)] = true
		*list = append(*list, nftables.SetElement{
			Key: key, Val: slices.Concat(p.To.Addr().AsSlice(), word16(p.To.Port())), Comment: p.Owner,
		})
	}
	return addressed, others
}

func word8(v uint8) []byte   { return []byte{v, 0, 0, 0} }
func word16(v uint16) []byte { return []byte{byte(v >> 8), byte(v), 0, 0} }

// loadAddress returns an expression that loads the source or destination address of a packet.
func (b builder) loadAddress(offset, register uint32) []expr.Any {
	return []expr.Any{&expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset,
		Len: 4 * b.family.addressWords}}
}

// comparePrefix returns expressions that compare an address of a packet with a prefix.
func (b builder) comparePrefix(offset uint32, p netip.Prefix, op expr.CmpOp) []expr.Any {
	n := 4 * b.family.addressWords
	mask := make([]byte, n)
	for bit := range p.Bits() {
		mask[bit/8] |= 0x80 >> (bit % 8)
	}
	return append(b.loadAddress(offset, keyRegister),
		&expr.Bitwise{SourceRegister: keyRegister, DestRegister: keyRegister, Len: n, Mask: mask, Xor: make([]byte, n)},
		&expr.Cmp{Op: op, Register: keyRegister, Data: p.Addr().AsSlice()})
}

// matchSet returns an expression that matches if the key is in the set. For a map, the expression can also load the value of the element.
func matchSet(s *nftables.Set, value bool) []expr.Any {
	l := &expr.Lookup{SourceRegister: keyRegister, SetName: s.Name, SetID: s.ID}
	if value {
		l.DestRegister, l.IsDestRegSet = valueRegister, true
	}
	return []expr.Any{l}
}

func matchLocalDestination() []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: keyRegister, FlagDADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: keyRegister, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
	}
}

func matchNonLoopback() []expr.Any {
	name := append([]byte("lo"), bytes.Repeat([]byte{0}, unix.IFNAMSIZ-2)...)
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: keyRegister},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: keyRegister, Data: name},
	}
}

func setMark() []expr.Any {
	bit, rest := uint32(hostPortMark), ^uint32(hostPortMark)
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: markRegister},
		&expr.Bitwise{
			SourceRegister: markRegister, DestRegister: markRegister, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(rest), Xor: binaryutil.NativeEndian.PutUint32(bit),
		},
		&expr.Meta{Key: expr.MetaKeyMARK, Register: markRegister, SourceRegister: true},
	}
}

func matchMark() []expr.Any {
	bit := binaryutil.NativeEndian.PutUint32(hostPortMark)
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: markRegister},
		&expr.Bitwise{SourceRegister: markRegister, DestRegister: markRegister, Len: 4, Mask: bit, Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: markRegister, Data: bit},
	}
}

func newVerdict(kind expr.VerdictKind, chain string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: kind, Chain: chain}}
}
