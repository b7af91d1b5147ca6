// Package hostsettings applies the settings of a KubeletConfiguration that concern the host and the agent, not pods.
//
//	kubeletCgroups, systemCgroups  --> EnterCgroups, and Run once a minute
//	makeIPTablesUtilChains         --> Run, once a minute: a chain that shows which iptables
//	                                   variant the host uses
//	protectKernelDefaults          --> Run, once: unless it is set, the kernel parameters of a kubelet
package hostsettings
