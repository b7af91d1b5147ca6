// Package migrate finds the kubelet, k3s, podman or docker that runs on a host, and tells how islet takes this host over. It reads files
// and the list of processes. It runs no program and changes nothing, except that WriteFiles writes the translated files into a new
// directory.
//
//	host's files --> Tree (limited) --+--> kubelet, containerd, CRI-O, k3s, podman, docker --+
//	processes ------------------------+                                                    |
//	                                      Program, Note (kept, different), File <-----------+
//	                                                  |
//	                                                  +--> steps in the order of phases, and the way back --> Report --> text, JSON
//
// The functions of a program add notes, files and steps to a planner. A step belongs to a phase. So the steps of several programs on one
// host are in one order. The way back lists the phases in reverse order.
//
// The files belong to root. But a Tree opens only regular files and limits their sizes, because a file may have been replaced by a FIFO,
// a device or a link to one of these.
package migrate
