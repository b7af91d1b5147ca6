// Package cni gives sandboxes their network. It satisfies the Network interface
// of the runtime.
//
//	Setup(id, netns) --> own:      ipam lease --> bridge islet0, veth --> host ports (nftables)
//	                 \-> conflist: libcni --> cni/plugin (built-in types in this process,
//	                                          others executed), when the directory has one
//
// The built-in network is on the node only when it is used: bridge, nftables table
// and sysctls come with the first pod. A conflist that appears takes over, for good,
// once its plugins are there. Then sandboxes on the built-in network are stale: the
// plan replaces them, and until the last has left (or half a minute is over) no pod
// starts on the new network, whose bridge may have the same addresses:
//
//	built-in, not laid --first pod--> laid --conflist--> pods leave --last, or 30 s--> conflist
//	   '----------------------conflist------------------------------------------------^
//
// A conflist that goes, or breaks, stays in force as it was. What an add-on made is
// never removed.
//
// A sandbox is known by its ID everywhere: as owner of its leases, of its host
// ports, of its CNI attachment, and in the name of its veth. So every step can be
// repeated, and what belongs to no live sandbox can be found (Reconcile).
//
// Order: on the way up the lease comes first and on the way down last, so that no
// address is given away while an interface has it.
//
// # The own network
//
// A pod has eth0 with an address of each pod CIDR and a default route by the
// bridge. Pods talk to each other directly; to the outside they have the node's
// address (masquerade), to the node their own. A host port is open for other hosts,
// the node, at 127.0.0.1 and ::1 too, and pods. The way from ::1 needs
// net.bridge.bridge-nf-call-ip6tables off (or br_netfilter not loaded): else the
// kernel drops the answers.
//
// # Repair
//
// Another program may remove what the network consists of: nft flush ruleset at a reload
// of the firewall, ip link del. While the built-in network is on the node, Run follows
// what the kernel tells (package notice), looks at the parts that a notice concerns, and
// makes anew what is missing: nftables table, bridge, addresses, routes, sysctls, the
// ports of sandboxes, the rules in others' firewalls. A sandbox whose pair of veths is
// gone gets a new one with the same addresses; one without a namespace is stale, so that
// the plan replaces it. Nothing is looked at while nothing changes. An item that is
// removed again and again is repaired at growing intervals (contest), so that a program
// that fights for it makes no busy loop. What waits is repaired when its time has come,
// whatever else is looked at meanwhile, and a part that could not be looked at is looked at
// again.
//
// What a pod with CAP_NET_ADMIN changes within its namespace is its own affair, as long
// as its interface is there.
//
// route_localnet of the bridge is on only while the node reaches a host port at 127.0.0.1,
// which needs it; the rule that keeps pods from the node's own 127.0.0.1 is there before
// and until after (package portmap). While the table is damaged and waits for its repair,
// route_localnet is off.
//
// # Firewalls
//
// The node forwards (net.ipv4.ip_forward, net.ipv6.conf.all.forwarding). Where a
// firewall on nftables, iptables-nft included, drops forwarded packets by policy,
// rules in front let pods through (nft.Admit). Where it drops by rule, as firewalld
// does, the bridge must be made trusted (firewall-cmd --permanent --zone=trusted
// --add-interface=islet0). iptables-legacy with policy drop needs
// iptables -I FORWARD -i islet0 -j ACCEPT, and the same with -o.
package cni
