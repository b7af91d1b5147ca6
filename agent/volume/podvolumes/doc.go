// Package podvolumes gives pods their files on the host: the pod's directory, its
// volumes, /etc/hosts and the termination logs. It is a hook: the worker calls
// Prepare before the sandbox and before each container, Container for each
// attempt, Release when nothing of the pod is left.
//
//	<root-dir>/pods/<uid>/                                   0750, as the kubelet has it
//	    volumes/<kind>/<name>          kubernetes.io~empty-dir ...
//	    volume-subpaths/<volume>/<container>/<index>   bind mounts of subPaths
//	    containers/<name>/<attempt>    termination logs
//	    etc-hosts
//
// A type of volume is a Kind: one file, and one row in builtin. Those whose files the
// node writes (configMap, secret, downwardAPI, projected) are one implementation,
// content, with different sources of files; a change reaches running containers by
// Refresh.
//
//	Objects, Fields --> sources --> files --write--> ..data --> timestamped directory
//
// What a container wrote is hostile: names in its volumes are only opened beneath
// them (openat2, os.Root), and nothing is removed while anything is mounted below.
package podvolumes
