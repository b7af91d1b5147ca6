// Package podlist serves a kubelet's lists of pods, and finds the pod and the container that a request names.
//
//	/pods, /allocatedPods ----> Lister --List--------------> pods of this node
//	/runningpods -------------> Lister --ListContainers----> pods with running containers in the runtime
//
//	/exec/NAMESPACE/POD/CONTAINER, ... --FindOrMirrored, FindRunning, FindStatus--> pod, ID of its container, status
//
// The functions for finding are used by the other packages of the server. They return errors with the status codes and texts of a kubelet.
package podlist
