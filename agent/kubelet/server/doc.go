// Package server is the node's HTTP API: the kubelet's paths (/pods, /containerLogs, /exec ...) on
// a kubelet's ports, and on the local unix socket islet's own as well (/islet/v1/..., package api).
//
//	islet <command> --unix socket, peer checked--> local mux ---+--> pods, logs, streams
//	API server -----TLS, access.Filter--> 10250 --> kubelet mux -+       |       |
//	anybody ---------------------------> 10255 --> what only reports   Pods   cri.Runtime
//	anybody on this host --------------> 10248 --> healthz
//
// Port 10250 is open only if some request can be admitted. A node without a control plane, whose
// configuration has neither a client CA nor anonymous access, or delegates authorization to the
// webhook, opens no such port; a kubelet would not even start. healthz is always open. A port that
// another process uses is an error at the start, which names the setting to change; an address that
// the host does not have yet is not an error.
//
// Every request is limited in size and time, and every port in connections; unauthenticated
// connections are closed. A stream ends when its client disconnects, when nothing was transferred
// for StreamIdleTimeout, or when the agent stops. Nothing is measured without a request.
package server
