// Package home configures the host for the agent as a KubeletConfiguration says, beyond the
// settings for pods.
//
//	kubeletCgroups, systemCgroups  --> Enter, and Run once a minute
//	makeIPTablesUtilChains         --> Run, once: a chain that shows which iptables
//	                                   variant the host uses
package home
