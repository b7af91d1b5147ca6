// Package plugin has the CNI plugin types that are built in: bridge, host-local,
// loopback and portmap. They run in the agent's process, or as executables that
// are links to the binary, with the configuration, results and files on disk of
// the upstream plugins of the same name.
//
//	conflist --libcni--> Exec.ExecPlugin --built in--> Run(type, command) --> result
//	                         |                           | ipam.type
//	                         '--others--> executable     '--> Exec again
//	CNI_COMMAND=ADD .../bridge --> Main --skel--> Run
//
// CNI versions 0.3.0 to 1.1.0; ADD, DEL, CHECK, STATUS and GC. Fields:
//
//   - bridge: bridge, isGateway, isDefaultGateway, forceAddress, ipMasq,
//     ipMasqBackend (either value; nftables is used), mtu, hairpinMode, promiscMode,
//     enabledad, portIsolation, ipam, dns, args.cni.mac, runtimeConfig.mac. Not
//     supported: vlan, vlanTrunk, preserveDefaultVlan, macspoofchk,
//     disableContainerInterface.
//   - host-local: subnet, rangeStart, rangeEnd, gateway, ranges, routes, dataDir,
//     resolvConf; addresses asked for by CNI_ARGS IP, args.cni.ips and
//     runtimeConfig.ips; runtimeConfig.ipRanges. All of upstream's.
//   - loopback: has none.
//   - portmap: runtimeConfig.portMappings, snat (true only), backend (either value;
//     nftables is used), markMasqBit (13 only). Not supported: conditionsV4,
//     conditionsV6, externalSetMarkChain, masqAll.
//
// A field that is not supported is an error that names it, unless its value asks
// for nothing (null, false, 0, "", [], {}): a configuration never means less than
// it says. Keys with a slash are other people's and are left alone.
//
// What bridge and portmap need of nftables is in the table islet_cni, with the
// owner in comments: kernel state, so that every process sees the same.
package plugin
