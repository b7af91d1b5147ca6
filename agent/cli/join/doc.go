// Package join has the command that makes this machine a node of a cluster:
//
//	token --> CA of the cluster --> settings --> password --> certificates --> proof at the API server
//	                                                                                |
//	                      /etc/islet/edge.yaml <-- /etc/islet/kubelet.yaml <-- the directory of the cluster
//
// Nothing but the password is written before the API server has accepted the new certificate. The last file connects the agent with the
// directory, so a step that fails leaves the node as it was. The command may be repeated.
package join
