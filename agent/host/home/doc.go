// Package home settles the agent on its host as a KubeletConfiguration asks, beyond what
// pods need.
//
//	kubeletCgroups, systemCgroups  --> Enter, and Run once a minute
//	makeIPTablesUtilChains         --> Run, once: the hint by which others find out
//	                                   which iptables the host uses
package home
