// Package server implements the node's HTTP API. On a kubelet's ports it serves a kubelet's paths (/pods, /containerLogs,
// /exec ...). On the local unix socket it also serves islet's own paths (/islet/v1/..., package api).
//
//	islet <command> --unix socket, peer checked--> local mux ----+--> local: islet's own paths
//	                                                             |
//	API server -----TLS, access.Filter--> 10250 --> kubelet mux -+--> logs, podlist, stats, streams, zpages
//	anybody ---------------------------> 10255 --> open paths -------> podlist, stats, zpages
//	anybody on this host --------------> 10248 ----------------------> zpages: healthz
//
// The file routes.go is the table of a kubelet's paths. It decides which port has which path. The packages below local add their own
// paths. The file build.go gives each package its part of the Config.
//
// Port 10250 is opened only if a request can be admitted. On a node without a control plane this requires a
// client CA or anonymous access, and also the authorization mode AlwaysAllow. Without these settings a
// kubelet would not even start. The port of healthz is always open. If another process uses a port, the agent
// does not start, and the error message contains the name of the setting. It is not an error if the host does
// not have the configured address yet.
//
// The size and the duration of requests are limited, and so is the number of connections to a port. Unauthenticated
// connections are closed. A stream ends when its client disconnects, when nothing was transferred for StreamIdleTimeout, or
// when the agent stops. The server measures nothing unless it is requested.
//
// The packages below it:
//
//	local       islet's own paths
//	logs        logs of containers and of the host
//	podlist     lists of pods; finds the pod that a request names
//	response    errors with status codes, JSON, and responses of unlimited length
//	stats       measurements and metrics
//	streams     exec, attach and port-forward
//	zpages      health checks and other pages about this process
package server
