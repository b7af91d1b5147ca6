// Package logs serves the logs of containers and of the host. Package agent/kubelet/logs reads the files.
//
//	/containerLogs/NAMESPACE/POD/CONTAINER --> options, pod --> status of the pod: which attempt --> runtime: path of the file
//	                                                                                                     |
//	client <-- lines, or the reason why the log is not complete <-- agent/kubelet/logs <-----------------+
//
//	/logs/PATH --> os.Root at the directory of the host's logs --> file, or list of the directory
//	a status of the node --LastLine--> the last line of a container's log
package logs
