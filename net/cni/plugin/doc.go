// Package plugin implements the built-in CNI plugin types: bridge, host-local, loopback and
// portmap. They run in the agent's process, or as executables that are links to the binary. Their
// configuration, results and files on disk have the format of the upstream plugins of the same
// name.
//
//	conflist --libcni--> Exec.ExecPlugin --built in--> Run(type, command) --> result
//	                         |                           | ipam.type
//	                         '--others--> runExecutable  '--> Exec again
//	CNI_COMMAND=ADD .../bridge --> Main --skel--> Run
//
// The supported CNI versions are 0.3.0 to 1.1.0, and the commands are ADD, DEL, CHECK, STATUS and GC. The supported fields are:
//
//   - bridge: bridge, isGateway, isDefaultGateway, forceAddress, ipMasq,
//     ipMasqBackend (either value; nftables is used), mtu, hairpinMode, promiscMode,
//     enabledad, portIsolation, ipam, dns, args.cni.mac, runtimeConfig.mac. Not
//     supported: vlan, vlanTrunk, preserveDefaultVlan, macspoofchk,
//     disableContainerInterface.
//   - host-local: subnet, rangeStart, rangeEnd, gateway, ranges, routes, dataDir,
//     resolvConf; addresses requested by CNI_ARGS IP, args.cni.ips and
//     runtimeConfig.ips; runtimeConfig.ipRanges. All of upstream's.
//   - loopback: has none.
//   - portmap: runtimeConfig.portMappings, snat (true only), backend (either value;
//     nftables is used), markMasqBit (13 only). Not supported: conditionsV4,
//     conditionsV6, externalSetMarkChain, masqAll.
//
// A field whose value is empty (null, false, 0, "", [], {}) is ignored. With another unsupported field, the executable of this name in
// CNI_PATH runs instead, unless it is a link to islet. If there is no such executable, the plugin returns an error that names the field. A
// configuration is therefore never applied in part. DEL and GC ignore unsupported fields, because an earlier version may have supported
// them. The caller must know whether the executable was run for ADD, and must not run DEL and GC without it. Keys with a slash belong to
// other programs and are ignored.
//
// The nftables rules of bridge and portmap are in the table islet_cni. Each element has a comment with the name of its owner. All processes
// share this state, because it is in the kernel.
package plugin
