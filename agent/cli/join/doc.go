// Package join has the command that makes this machine a node of a cluster:
//
//	token --> CA of the cluster --> settings --> password --> certificates --> proof at the API server
//	                                                                                |
//	                      /etc/islet/edge.yaml <-- /etc/islet/kubelet.yaml <-- the directory of the cluster
//
// Nothing but the password is written before the API server has accepted the new certificate. The last file connects the agent with the
// directory. A step that fails leaves the node as it was. After a power cut between the files, the agent writes the rest (k3s.Complete),
// unless somebody has edited one of these files since: then it writes none, and reports that. At the end, the configuration that the
// installed service loads must be that of the cluster. The command may be repeated.
package join
