// Package machine provides facts about the machine on which the agent runs. Pods get its name, addresses and
// resolv.conf, admission gets its resources, and the Node object and its events get everything that a kubelet
// reports.
//
//	configuration, host --> Machine --> translate, admit, status, link
//	Machine, runtime, health --> Reporter --> Node object, events
//	changed addresses, resolv.conf --> Follower --> rounds of the pods' workers, running sandboxes
package machine
