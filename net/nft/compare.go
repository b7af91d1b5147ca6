package nft

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/google/nftables"

	"github.com/islet-edge/islet/net/netns"
)

// A Print is a fingerprint of the chains and rules in the kernel's tables for IPv4 and IPv6 that have a given name. It changes if a rule or
// chain is added, replaced or removed, or if a table is made dormant. The zero value means that the kernel has no such table.
type Print string

// PrintOf returns the fingerprint of the tables. The fingerprint contains the kernel's numbers of the rules. A rule that was removed and
// added again has a new number.
func PrintOf(ns netns.NS, name string) (Print, error) {
	c, done, err := openConn(ns)
	if err != nil {
		return "", err
	}
	defer done()
	var b strings.Builder
	for _, f := range []ipFamily{ip4, ip6} {
		table, err := c.ListTableOfFamily(name, f.nft)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			if f.addressWords > 1 {
				continue // a kernel without IPv6
			}
			return "", fmt.Errorf("read nftables table %s: %w", name, err)
		}
		fmt.Fprintf(&b, "%d %d\n", table.Family, table.Flags)
		if err := printChains(c, table, &b); err != nil {
			return "", fmt.Errorf("read nftables table %s: %w", name, err)
		}
	}
	return Print(b.String()), nil
}

func printChains(c *nftables.Conn, table *nftables.Table, b *strings.Builder) error {
	chains, err := c.ListChainsOfTableFamily(table.Family)
	if err != nil {
		return err
	}
	for _, chain := range chains {
		if chain.Table.Name != table.Name {
			continue
		}
		rules, err := c.GetRules(table, chain)
		if err != nil {
			return err
		}
		b.WriteString(chain.Name)
		if chain.Hooknum != nil && chain.Priority != nil {
			fmt.Fprintf(b, " %d %d", *chain.Hooknum, *chain.Priority)
		}
		if chain.Policy != nil {
			fmt.Fprintf(b, " %d", *chain.Policy)
		}
		for _, r := range rules {
			fmt.Fprintf(b, " %d", r.Handle)
		}
		b.WriteByte('\n')
	}
	return nil
}

// EqualElements reports whether two tables have the same elements.
func EqualElements(a, b Table) bool {
	for _, f := range []ipFamily{ip4, ip6} {
		one, other := setElements(a.forFamily(f)), setElements(b.forFamily(f))
		for i := range one {
			if len(subtractElements(one[i], other[i]))+len(subtractElements(other[i], one[i])) > 0 {
				return false
			}
		}
	}
	return true
}
