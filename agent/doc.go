// Package agent is the wiring of the node: it builds every part from one Config, runs them, and stops them in
// reverse. What a part does is in its own room; here is only who is told what. Nothing keeps a pointer to the whole.
//
//	source --> desired --uid--> worker.Set <--uid-- observe <-- ctrd
//	             |                |   ^
//	             |  Changed(uid)  |   | Admit, Get, Forget
//	             v                v   |
//	           pods: verdicts, statuses --> outbox, server
//
// Its folders are districts. The root package of a district opens it, where it has one: device, volume, engine, resource,
// cluster. Of the others package agent opens the rooms: pod, plugin, kubelet, change, host. Package main opens cli.
package agent
