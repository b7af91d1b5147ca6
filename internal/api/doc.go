// Package api defines the JSON types of islet's own endpoints on the local unix socket. The other
// endpoints on this socket are the same as a kubelet's (/pods, /containerLogs, /exec ...).
//
//	islet <command> --HTTP over the socket--> agent/kubelet/server
package api
