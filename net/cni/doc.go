// Package cni sets up the network of sandboxes. Its Network implements the interface of the same
// name in the runtime.
//
//	Setup(id, netns) --> built-in: ipam lease --> bridge islet0, veth --> host ports (nftables)
//	                 \-> conflist: libcni --> cni/plugin (built-in types in this process,
//	                                          others executed), if the directory has one
//
// The built-in network is installed on first use: Setup creates the bridge, the nftables table and the sysctls for the first pod. When a
// conflist appears and its plugins exist, the conflist takes over: from then on, the node uses its network for new pods. Sandboxes on the
// built-in network are then stale, and the plan (package agent/pod/plan) replaces them. The new network's bridge may have the same
// addresses. Therefore no pod starts on the new network until the last stale sandbox is gone, or 30 s have passed:
//
//	not installed --first pod--> installed --conflist--> pods leave --last, or 30 s--> conflist
//	   '----------------------conflist--------------------------------------------------^
//
// Plugins get the namespace of a sandbox at a path in /var/run/netns (type namedNamespaces), which their daemons in containers can open.
// This path exists until the plugins have removed the sandbox. So a failed DEL keeps the namespace and its interfaces, also after the
// runtime has removed its own pin, until DEL succeeds. The same is true in containerd. If another program has removed the path, Teardown
// makes it again from the runtime's pin.
//
// A plugin may need its daemon, which is itself a pod of this node, or another machine. Therefore no pod waits for the removal of ended
// sandboxes, and the start of the agent waits at most defaultStartTime for it. Ended sandboxes are sandboxes of a former boot, and
// sandboxes whose set-up and removal have failed. Run removes them, and retries (type endedSandboxes).
//
// If a conflist is removed or becomes invalid, its last valid version stays active. islet never removes objects that an add-on created.
//
// All objects of a sandbox are identified by the sandbox ID: the leases, the host ports, the CNI attachment and the name of the veth. Every
// step can therefore be repeated, and Reconcile can find objects whose sandbox no longer exists.
//
// Setup leases an address before it creates an interface, and Teardown releases the address last. An address is therefore never assigned
// while an interface still has it.
//
// # The built-in network
//
// A pod has eth0 with an address from each pod CIDR and a default route through the bridge. Pods communicate directly with each other.
// Connections from a pod to other hosts outside the pod network are masqueraded with the node's address. Connections to the node keep the
// pod's address. A host port is open for other hosts, for pods and for the node, also at 127.0.0.1 and ::1. Host ports at ::1 require
// net.bridge.bridge-nf-call-ip6tables=0 (or br_netfilter not loaded). Otherwise the kernel drops the replies.
//
// # Repair
//
// Other programs may remove parts of the network, for example by nft flush ruleset when a firewall is reloaded, or by ip link del. While
// the built-in network is installed, Run receives notices from the kernel (package notice), checks the affected parts, and restores
// missing ones: the nftables table, the bridge, addresses, routes, sysctls, the ports of sandboxes, and the rules in other firewalls. If
// the veth pair of a sandbox is gone, the sandbox gets a new pair with the same addresses. If the namespace of a sandbox is gone, the
// sandbox is stale and the plan replaces it. Without notices from the kernel, Run checks nothing.
//
// If another program removes an item repeatedly, the pauses between the repairs grow (type repairSchedule), which prevents a busy loop. A
// postponed repair runs when its pause ends. Checks of other parts do not delay this repair. If the check of a part fails, the check is
// repeated.
//
// If another interface has or gets an address in the pods' network, islet does not remove the address. It reports the address by an event
// and in Repairs until the address is gone. Ready returns an error only if the machine itself may be cut off.
//
// islet does not repair changes that a pod with CAP_NET_ADMIN makes in its own namespace, as long as the pod's interface exists.
//
// A host port at 127.0.0.1 needs route_localnet of the bridge, which is set only while such a port is open. A rule drops packets from pods
// to the node's own 127.0.0.1. The rule is added before route_localnet is set, and removed after route_localnet is cleared (package
// portmap). If the table is damaged and its repair is postponed, route_localnet is cleared until the repair.
//
// # Firewalls
//
// The node forwards packets (net.ipv4.ip_forward, net.ipv6.conf.all.forwarding). A firewall that uses nftables (also through iptables-nft)
// may have a chain with the policy to drop forwarded packets. Then islet inserts rules that accept the packets of pods
// (nft.AllowForwarding). If a rule of the firewall drops the packets, as in firewalld, an administrator must make the bridge trusted
// (firewall-cmd --permanent --zone=trusted --add-interface=islet0). With iptables-legacy and the policy drop, an administrator must add
// rules: iptables -I FORWARD -i islet0 -j ACCEPT, and the same with -o.
package cni
