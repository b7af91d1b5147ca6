package nft

import (
	"bytes"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/sorting"
)

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

func word8(v uint8) []byte { return []byte{v, 0, 0, 0} }

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

// matchFirstSegment returns expressions that match the first TCP packet of a connection in each direction: SYN without RST.
func matchFirstSegment() []expr.Any {
	const flagsOffset, rst, syn = 13, 0x04, 0x02
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: keyRegister},
		&expr.Cmp{Op: expr.CmpOpEq, Register: keyRegister, Data: []byte{unix.IPPROTO_TCP}},
		&expr.Payload{DestRegister: keyRegister, Base: expr.PayloadBaseTransportHeader, Offset: flagsOffset, Len: 1},
		&expr.Bitwise{SourceRegister: keyRegister, DestRegister: keyRegister, Len: 1, Mask: []byte{syn | rst}, Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpEq, Register: keyRegister, Data: []byte{syn}},
	}
}

// limitSegmentSize returns expressions that set the TCP option for the maximum segment size to the smaller MTU of the packet's route and
// of the route back, less the headers. The kernel never increases the option, and does not add it.
func limitSegmentSize() []expr.Any {
	const option, offset, size = 2, 2, 2 // RFC 9293, section 3.2
	return []expr.Any{
		&expr.Rt{Register: valueRegister, Key: expr.RtTCPMSS},
		&expr.Byteorder{SourceRegister: valueRegister, DestRegister: valueRegister, Op: expr.ByteorderHton, Len: size, Size: size},
		&expr.Exthdr{SourceRegister: valueRegister, Type: option, Offset: offset, Len: size, Op: expr.ExthdrOpTcpopt},
	}
}

func newVerdict(kind expr.VerdictKind, chain string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: kind, Chain: chain}}
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

// These are the first registers of keys, values and marks. The key of a set occupies one 32-bit register for each 4 bytes, starting at
// keyRegister. The value of a map element is loaded into the registers from valueRegister on.
const (
	keyRegister   = unix.NFT_REG32_00
	valueRegister = unix.NFT_REG32_08
	markRegister  = unix.NFT_REG32_14
)
