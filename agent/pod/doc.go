// Package pod contains the packages for a pod's whole life, from its admission to the release of its last resource.
// None of them imports a package of another part of the agent. Features take part in a pod's life through hooks.
//
//	plan     what must happen to a pod now: pure, for all who reason about pods
//	hook     how a feature joins a pod's life
//	life     keeps pods: the worker, what the runtime says, verdicts, recovery of a lost store
//	spec     what a pod's spec means: admission, the CRI's configurations, user namespaces
//	status   the status that a kubelet would report
//	machine  what pods and the Node are told of the machine
//	probe    probes, hooks of containers, and the calls that they make
//	figures  what is counted of pods
//	collect  removes what pods leave behind
package pod
