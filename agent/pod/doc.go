// Package pod contains the packages for a pod's whole life, from its admission to the release of its last resource.
// None of them imports a package of another part of the agent. Features take part in a pod's life through hooks.
//
//	plan     decides which actions a pod needs; a pure function
//	hook     the interfaces through which a feature takes part in a pod's life
//	life     the workers of pods, their state in the runtime, decisions about pods, rebuild of a lost store
//	spec     admission, translation of a pod's spec to the CRI, user namespaces
//	status   the status that a kubelet would report
//	machine  facts about the machine for pods and the Node
//	probe    probes, lifecycle hooks, and the calls that they make
//	figures  metrics of pods
//	collect  removes files that pods leave behind
package pod
