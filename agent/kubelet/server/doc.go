// Package server is what others can ask of this node over HTTP: the kubelet's
// paths (/pods, /containerLogs, /exec ...) on a kubelet's ports and, on the local
// unix socket only, islet's own (/islet/v1/..., package api) as well.
//
//	islet <command> --unix socket, peer checked--> local mux ---+--> pods, logs, streams
//	API server -----TLS, access.Guard--> 10250 --> kubelet mux -+       |       |
//	anybody ---------------------------> 10255 --> what only reports   Pods   cri.Runtime
//	anybody on this host --------------> 10248 --> healthz
//
// Port 10250 is there when somebody could be admitted: a node without a control
// plane whose configuration has neither a file of client authorities nor anonymous
// access, or leaves permissions to the webhook, has nobody to admit, and so no
// port; its kubelet would not even start. healthz is there in any case. A port
// that another process has is an error at the start, with the setting that moves
// it; an address that the host does not have yet is none.
//
// Every request has a bound in size and time, every port in connections, and a
// client that is not known is not kept. A stream ends when its client is gone, when
// nothing has moved for StreamIdleTimeout, or when the agent stops. Nothing is
// measured until somebody asks.
package server
