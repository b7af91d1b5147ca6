// Package api holds what islet's own endpoints on the local unix socket say, as
// JSON. Everything else there is a kubelet's (/pods, /containerLogs, /exec ...).
//
//	islet <command> --HTTP over the socket--> agent/kubelet/server
package api
