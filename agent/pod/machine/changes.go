package machine

import (
	"reflect"
	"slices"
	"time"

	"github.com/islet-edge/islet/agent/pod/spec/translate"
)

// changes says which facts about the machine's network have changed. Pods use these facts.
type changes struct {
	addresses, dns bool
	first          bool // the node had no known address before, and has one now
}

// refresh reads the addresses and the resolv.conf again if they are older than the given time. If they differ from the last ones, it
// records the difference and wakes the Follower. The caller holds mu.
func (n *Machine) refresh(fresh time.Duration) {
	first := n.readAt.IsZero()
	if since := time.Since(n.readAt); !first && since <= fresh && since >= 0 {
		return
	}
	n.readAt = time.Now()
	ips, dns := n.last.IPs, n.last.Resolv
	n.findAddresses()
	n.last.IPs = texts(n.known)
	n.last.Resolv, n.last.NoResolv = n.readResolv(), *n.cfg.Kubelet.ResolverConfig == ""
	if !first {
		moved := !slices.Equal(ips, n.last.IPs)
		n.record(changes{addresses: moved, dns: !reflect.DeepEqual(dns, n.last.Resolv), first: moved && len(ips) == 0})
	}
}

func (c changes) with(d changes) changes {
	return changes{c.addresses || d.addresses, c.dns || d.dns, c.first || d.first}
}

// record adds changes for the Follower. The caller holds mu.
func (n *Machine) record(c changes) {
	if c == (changes{}) {
		return
	}
	n.changes = n.changes.with(c)
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// takeChanges returns the changes since its last call.
func (n *Machine) takeChanges() changes {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.changes
	n.changes = changes{}
	return c
}

// reread reads the addresses and the resolv.conf now, because they may have changed. It returns false if the addresses could not be read.
func (n *Machine) reread() (ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refresh(-1)
	return n.findErr == nil
}

// CheckDNS compares the DNS servers with the result of an earlier call of Now. If they differ, the Follower updates the resolv.conf of all
// sandboxes again. It is called after a sandbox was created with the earlier servers, which the update of a moment ago may have missed.
func (n *Machine) CheckDNS(earlier translate.Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.record(changes{dns: !reflect.DeepEqual(earlier.Resolv, n.last.Resolv)})
}
