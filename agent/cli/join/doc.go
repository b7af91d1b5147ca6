// Package join has the command that makes this machine a node of a cluster:
//
//	token --> CA of the cluster --> settings --> password --> certificates --> proof at the API server
//	                                                                                |
//	                      /etc/islet/edge.yaml <-- /etc/islet/kubelet.yaml <-- the directory of the cluster
//
// Nothing but the password is written before the API server has accepted the new certificate. The last file connects the agent with the
// directory. A step that fails leaves the node as it was. After a power cut between the files, the agent writes the remaining files
// (k3s.Complete). If somebody has edited one of the files since, the agent writes none and reports an error. At the end, the command checks
// that the installed service would load the configuration of the cluster. The command may be repeated.
package join
