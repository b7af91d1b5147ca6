// Package podvolumes manages a pod's files on the host: its directory, volumes, /etc/hosts and
// termination logs. It is a pod hook. The worker calls Prepare before it starts the sandbox and before each
// container, Container for each attempt to start a container, and Release when the pod has no processes left.
//
//	<root-dir>/pods/<uid>/                                   0750, as in a kubelet
//	    volumes/<kind>/<name>          kubernetes.io~empty-dir ...
//	    volume-subpaths/<volume>/<container>/<index>   bind mounts of subPaths
//	    containers/<name>/<attempt>    termination logs
//	    etc-hosts
//
// Each type of volume is a Kind. Each Kind has a file of its own and an entry in builtinKinds. The types whose files
// the node writes (configMap, secret, downwardAPI, projected) share one implementation (content) but have different
// sources. Refresh updates the files while containers run.
//
//	Objects, Fields --> sources --> files --write--> ..data --> timestamped directory
//
// Containers are not trusted. So a path in a volume is resolved only beneath this volume (openat2, os.Root), and a
// directory is not removed while anything is mounted below it.
package podvolumes
