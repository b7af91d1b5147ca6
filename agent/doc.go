// Package agent is the wiring of the node: it builds every part from one Config, runs them, and stops them in
// reverse. A part's work is done in its own room; here is only which parts call each other.
//
//	base <- disk <- node <- containers <- podset <- joined <- featured <- working <- serving
//
// Each struct embeds the one before it, so a part can only use what was built before it. What it needs of a
// later one it calls through a cell: see late.
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
