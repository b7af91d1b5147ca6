// Package status serves the status of the node for islet status and other commands.
//
//	Pods --------> numbers of pods, troubles, evictable pods, ignored fields --+
//	Runtime -----> versions, readiness of the runtime and of the network ------+--> api.Status --> what needs attention
//	Describe ----> the other parts of the node (agent/kubelet/describe) -------+
//	file systems, host ports, last lines of logs ------------------------------'
//
// Everything is measured during a request.
package status
