// Package cni sets up the network of sandboxes. Its Network implements the interface of the same
// name in the runtime.
//
//	Setup(id, netns) --> built-in: ipam lease --> bridge islet0, veth --> host ports (nftables)
//	                 \-> conflist: libcni --> cni/plugin (built-in types in this process,
//	                                          others executed), if the directory has one
//
// The built-in network is installed only when it is used: bridge, nftables table and sysctls are created for the first
// pod. When a conflist appears and its plugins exist, the node uses that configuration from then on (it takes over).
// Sandboxes on the built-in network are then stale, and the plan replaces them. No pod starts on the new network until
// the last of these sandboxes is gone, or half a minute has passed. The new network's bridge may have the same
// addresses:
//
//	not installed --first pod--> installed --conflist--> pods leave --last, or 30 s--> conflist
//	   '----------------------conflist--------------------------------------------------^
//
// If a conflist is removed or becomes invalid, its last valid version stays active. Objects that an
// add-on created are never removed.
//
// A sandbox's ID identifies it everywhere: it is the owner of its leases, host ports and CNI
// attachment, and the name of its veth is derived from it. Therefore every step can be repeated,
// and Reconcile can find objects that belong to no live sandbox.
//
// Setup takes the lease first and Teardown releases it last, so that no address is assigned again
// while an interface has it.
//
// # The built-in network
//
// A pod has eth0 with an address from each pod CIDR and a default route through the bridge. Pods
// communicate directly with each other. Connections from a pod to the outside are masqueraded with
// the node's address. Connections to the node keep the pod's address. A host port is open for other
// hosts, for pods and for the node, also at 127.0.0.1 and ::1. Host ports at ::1 require
// net.bridge.bridge-nf-call-ip6tables off (or br_netfilter not loaded), because otherwise the
// kernel drops the replies.
//
// # Repair
//
// Another program may remove parts of the network, for example nft flush ruleset when a firewall is
// reloaded, or ip link del. While the built-in network is installed, Run receives notices from the
// kernel (package notice), checks the affected parts, and restores missing ones: nftables table,
// bridge, addresses, routes, sysctls, the ports of sandboxes, and the rules in other firewalls. A
// sandbox whose veth pair is gone gets a new pair with the same addresses. A sandbox whose
// namespace is gone is stale, so that the plan replaces it. Nothing is checked while nothing
// changes.
//
// An item that is removed again and again is repaired at growing intervals (contest), so that a
// competing program does not cause a busy loop. A postponed repair happens when its pause ends.
// Checks of other parts do not delay it. A part whose check failed is checked again.
//
// Changes that a pod with CAP_NET_ADMIN makes in its own namespace are not repaired while its
// interface exists.
//
// route_localnet of the bridge is on only while a host port is open at 127.0.0.1, which needs it. A rule drops packets
// from pods to the node's own 127.0.0.1. It is added before route_localnet is set, and removed after route_localnet is
// cleared (package portmap). route_localnet is off while the table is damaged and its repair is postponed.
//
// # Firewalls
//
// The node forwards packets (net.ipv4.ip_forward, net.ipv6.conf.all.forwarding). If a firewall on
// nftables, including iptables-nft, drops forwarded packets by policy, islet inserts rules that let
// pods through (nft.Admit). If it drops them by a rule, like firewalld, the bridge has to be made
// trusted (firewall-cmd --permanent --zone=trusted --add-interface=islet0). iptables-legacy with
// the policy drop requires iptables -I FORWARD -i islet0 -j ACCEPT, and the same with -o.
package cni
