// Package agent is the wiring of the node: it builds every part from one Config,
// runs them, and stops them in reverse. What a part does is in its own room;
// here is only who is told what.
//
//	source --> desired --uid--> worker.Set <--uid-- observe <-- ctrd
//	             |                  |
//	             |               Changed(uid)
//	             v                  v
//	           pods: admission, status, what the server shows
package agent
