package machine

import (
	"reflect"
	"slices"
	"time"

	"github.com/islet-edge/islet/agent/pod/spec/translate"
)

// changes says which facts about the machine's network have changed. Pods use these facts.
type changes struct{ addresses, dns bool }

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
		n.record(changes{addresses: !slices.Equal(ips, n.last.IPs), dns: !reflect.DeepEqual(dns, n.last.Resolv)})
	}
}

// record adds changes for the Follower. The caller holds mu.
func (n *Machine) record(c changes) {
	if c == (changes{}) {
		return
	}
	n.changes = changes{n.changes.addresses || c.addresses, n.changes.dns || c.dns}
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

// reread reads the addresses and the resolv.conf now, because they may have changed.
func (n *Machine) reread() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refresh(-1)
}

// CheckDNS compares the DNS servers with those of an earlier call of Now. If they differ, the Follower updates the resolv.conf of all
// sandboxes again. It is called after a sandbox was created with the earlier servers, which the update of a moment ago may have missed.
func (n *Machine) CheckDNS(earlier translate.Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.record(changes{dns: !reflect.DeepEqual(earlier.Resolv, n.last.Resolv)})
}
