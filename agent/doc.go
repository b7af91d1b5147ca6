// Package agent wires the node together. It builds every part from one Config, connects the parts, runs them, and
// stops them in reverse order. The work itself is done in the packages of the parts.
//
//	base <- disk <- node <- containers <- podset <- joined <- featured <- working <- serving
//
// Each struct embeds the one before it, so a part can only use parts that were built before it. It calls a later part
// through a cell of the type late.
//
//	source --> desired --uid--> worker.Set <--uid-- observe <-- ctrd
//	             |                |   ^
//	             |  Changed(uid)  |   | Admit, Get, Forget
//	             v                v   |
//	           pods: verdicts, statuses --> outbox, server
//
// The folders below agent are districts, their packages are rooms. device, volume, engine, resource and cluster have
// a root package, which opens the whole district. In pod, plugin, kubelet, change and host, package agent opens each
// room itself. Package main calls cli.
package agent
