// Package agent is the wiring of the node: it builds every part from one Config, runs them, and stops them in
// reverse. What a part does is in its own room; here is only who is told what. Nothing keeps a pointer to the whole.
//
//	source --> desired --uid--> worker.Set <--uid-- observe <-- ctrd
//	             |                |   ^
//	             |  Changed(uid)  |   | Admit, Get, Forget
//	             v                v   |
//	           pods: verdicts, statuses --> outbox, server
//
// The rooms that it connects: containers (what runs them), machine (what is so of the
// host), cluster (the way to a control plane), objects, volume, figures, health, describe, ports, recovery, settle, process.
package agent
