package nft

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/google/nftables/xt"
	"github.com/islet-edge/islet/net/netns"
	"golang.org/x/sys/unix"
)

// ruleComment is the comment that identifies the rules of AllowForwarding.
const ruleComment = "islet pod network"

// AllowForwarding makes firewalls accept packets of the pods on a bridge. It changes each chain of the forward hook whose policy is drop.
// At the beginning of the chain, it inserts two rules, unless these rules exist. One rule accepts packets from the bridge. The other rule
// accepts packets to the bridge that are replies or were sent to a host port. The firewall still decides about other packets to pods.
// AllowForwarding returns the chains that it has changed.
//
// The rules must be in the firewall's own chain, because a packet that one table accepts can still be dropped by another table. The rules
// have no effect in a chain that drops packets by a rule, as in firewalld. In this case the bridge must be in a trusted zone.
// AllowForwarding does not change iptables-legacy, which is not a part of nftables.
func AllowForwarding(ns netns.NS, bridge string) ([]string, error) {
	c, done, err := openConn(ns)
	if err != nil {
		return nil, err
	}
	defer done()
	chains, err := c.ListChains()
	if err != nil {
		return nil, fmt.Errorf("list nftables chains: %w", err)
	}
	var changed []string
	for _, chain := range chains {
		if !isForwardFilter(chain) || chain.Policy == nil || *chain.Policy != nftables.ChainPolicyDrop {
			continue
		}
		rules, err := listOwnRules(c, chain)
		if err != nil {
			return nil, err
		}
		if len(rules) > 0 {
			continue
		}
		replyMatch := matchReplies()
		if chain.Name == "FORWARD" && chain.Table.Name == "filter" && chain.Table.Family != nftables.TableFamilyINet {
			replyMatch = matchRepliesIPTables()
		}
		for _, exprs := range [][]expr.Any{
			slices.Concat(matchInterface(expr.MetaKeyOIFNAME, bridge), replyMatch),
			matchInterface(expr.MetaKeyIIFNAME, bridge),
		} {
			c.InsertRule(&nftables.Rule{Table: chain.Table, Chain: chain, UserData: encodeComment(),
				Exprs: append(exprs, &expr.Counter{}, &expr.Verdict{Kind: expr.VerdictAccept})})
		}
		changed = append(changed, chain.Table.Name+" "+chain.Name)
	}
	if err := c.Flush(); err != nil {
		return nil, fmt.Errorf("add rules that accept the pods' packets: %w", err)
	}
	return changed, nil
}

// RemoveForwarding removes the rules that AllowForwarding added. It is called on a decommissioned node.
func RemoveForwarding(ns netns.NS) error {
	c, done, err := openConn(ns)
	if err != nil {
		return err
	}
	defer done()
	chains, err := c.ListChains()
	if err != nil {
		return fmt.Errorf("list nftables chains: %w", err)
	}
	for _, chain := range chains {
		if !isForwardFilter(chain) {
			continue
		}
		rules, err := listOwnRules(c, chain)
		if err != nil {
			return err
		}
		for _, r := range rules {
			if err := c.DelRule(&nftables.Rule{Table: chain.Table, Chain: chain, Handle: r.Handle}); err != nil {
				return fmt.Errorf("remove a rule of %s: %w", chain.Name, err)
			}
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("remove rules from the firewall: %w", err)
	}
	return nil
}

func encodeComment() []byte { return userdata.AppendString(nil, userdata.TypeComment, ruleComment) }

// listOwnRules returns the rules that AllowForwarding has added to a chain.
func listOwnRules(c *nftables.Conn, chain *nftables.Chain) ([]*nftables.Rule, error) {
	rules, err := c.GetRules(chain.Table, chain)
	if err != nil {
		return nil, fmt.Errorf("list rules of %s: %w", chain.Name, err)
	}
	return slices.DeleteFunc(rules, func(r *nftables.Rule) bool { return !bytes.Contains(r.UserData, encodeComment()) }), nil
}

// isForwardFilter reports whether a chain filters forwarded packets.
func isForwardFilter(c *nftables.Chain) bool {
	family := c.Table.Family
	return c.Type == nftables.ChainTypeFilter && c.Hooknum != nil && *c.Hooknum == *nftables.ChainHookForward &&
		(family == nftables.TableFamilyIPv4 || family == nftables.TableFamilyIPv6 || family == nftables.TableFamilyINet)
}

func matchInterface(key expr.MetaKey, name string) []expr.Any {
	padded := make([]byte, unix.IFNAMSIZ)
	copy(padded, name)
	return []expr.Any{
		&expr.Meta{Key: key, Register: unix.NFT_REG_1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: unix.NFT_REG_1, Data: padded},
	}
}

// matchReplies matches packets of three kinds of connections: established, related, or to a host port. Each of these connections has one of
// the tested bits in its conntrack status.
func matchReplies() []expr.Any {
	const ipsSeenReply, ipsExpected, ipsDstNAT = 1 << 1, 1 << 0, 1 << 5
	bits := binaryutil.NativeEndian.PutUint32(ipsSeenReply | ipsExpected | ipsDstNAT)
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATUS, Register: unix.NFT_REG_1},
		&expr.Bitwise{SourceRegister: unix.NFT_REG_1, DestRegister: unix.NFT_REG_1, Len: 4, Mask: bits, Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: unix.NFT_REG_1, Data: make([]byte, 4)},
	}
}

// matchRepliesIPTables matches the same packets, in the form in which iptables encodes --ctstate RELATED,ESTABLISHED,DNAT. iptables cannot
// read a table that contains rules in another form.
func matchRepliesIPTables() []expr.Any {
	const matchState, established, related, dnat = 1 << 0, 1 << 1, 1 << 2, 1 << 7
	info := &xt.ConntrackMtinfo3{}
	info.MatchFlags = matchState
	info.StateMask = established | related | dnat
	return []expr.Any{&expr.Match{Name: "conntrack", Rev: 3, Info: info}}
}
