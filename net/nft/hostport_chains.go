package nft

import (
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// addChains adds the chains of the table: guard protects the addresses of loopback, hostports forwards host ports to pods, mss fits TCP to
// the node's uplink, and postrouting masquerades.
func (b builder) addChains(s tableSets) {
	if b.family.addressWords == 1 {
		guard := b.addBaseChain("guard", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityRaw)
		b.addRule(guard, slices.Concat(
			matchNonLoopback(), b.comparePrefix(b.family.dest, b.family.loopback, expr.CmpOpEq), newVerdict(expr.VerdictDrop, ""))...)
	}
	ports := b.conn.AddChain(&nftables.Chain{Name: "hostports", Table: b.table})
	b.addRule(ports, slices.Concat(b.loadAddress(b.family.dest, keyRegister), b.portKey(keyRegister+b.family.addressWords),
		matchSet(s.byAddress, true), setMark(), b.translateToPod())...)
	b.addRule(ports, slices.Concat(b.portKey(keyRegister), matchSet(s.byPort, true), setMark(), b.translateToPod())...)
	for _, chain := range []*nftables.Chain{
		b.addBaseChain("prerouting", nftables.ChainTypeNAT, nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest),
		b.addBaseChain("output", nftables.ChainTypeNAT, nftables.ChainHookOutput, nftables.ChainPriorityNATDest),
	} {
		b.addRule(chain, slices.Concat(matchLocalDestination(), newVerdict(expr.VerdictJump, ports.Name))...)
	}
	b.addSegmentSize(s)
	post := b.addBaseChain("postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource)
	b.addRule(post, slices.Concat(matchMark(), b.loadAddress(b.family.source, keyRegister), matchSet(s.local, false),
		[]expr.Any{&expr.Masq{}})...)
	b.addRule(post, slices.Concat(
		matchMark(), b.comparePrefix(b.family.source, b.family.loopback, expr.CmpOpEq), []expr.Any{&expr.Masq{}})...)
	outside := matchSet(s.local, false)
	outside[0].(*expr.Lookup).Invert = true
	b.addRule(post, slices.Concat(b.loadAddress(b.family.source, keyRegister), matchSet(s.masquerade, false),
		b.loadAddress(b.family.dest, keyRegister), outside,
		b.comparePrefix(b.family.dest, b.family.multicast, expr.CmpOpNeq), []expr.Any{&expr.Masq{}})...)
}

// addSegmentSize adds a chain that reduces the maximum segment size in the first packets of the pods' TCP connections to what the routes of
// the connection allow. A pod's interface has an MTU of 1500, and the uplink may have less: LTE, PPPoE, or WireGuard as the default route.
// Without the chain, pods announce segments that the uplink cannot carry. If a router on the path drops the ICMP messages about that, the
// connection hangs. The node's own connections have the right size without a rule.
func (b builder) addSegmentSize(s tableSets) {
	chain := b.addBaseChain("mss", nftables.ChainTypeFilter, nftables.ChainHookForward, nftables.ChainPriorityMangle)
	for _, address := range []uint32{b.family.source, b.family.dest} {
		b.addRule(chain, slices.Concat(matchFirstSegment(), b.loadAddress(address, keyRegister), matchSet(s.local, false),
			limitSegmentSize())...)
	}
}

// portKey returns expressions that load the protocol and the destination port of a packet.
func (b builder) portKey(register uint32) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register},
		&expr.Payload{DestRegister: register + 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
	}
}

func (b builder) translateToPod() []expr.Any {
	return []expr.Any{&expr.NAT{
		Type: expr.NATTypeDestNAT, Family: b.family.proto,
		RegAddrMin: valueRegister, RegProtoMin: valueRegister + b.family.addressWords, Specified: true,
	}}
}
