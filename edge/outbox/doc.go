// Package outbox tells the API server what became of the pods of this node: their
// statuses, mirror pods of those that the node has from elsewhere, the end of deleted
// ones, and events.
//
//	status.Make --Put--> newest status per pod ---.
//	worker ----Finish--> nothing of it is left ---+--differs from--> PATCH pods/status
//	                                              |                  POST, DELETE pods (mirrors)
//	source.API --Listed, Seen, Gone--> as the ----'                  DELETE pods (ended) --> Forget
//	                                   server shows it
//
// There is no queue that could overflow or get lost: what is to be sent is what differs
// between the newest status and what the server shows. So a status that changed ten
// times while the link was down is sent once; after a restart of the agent the store has
// the statuses, the first list has the server's side, and only differences are sent.
//
// What a user waits for (phase, readiness, states of containers, addresses) is sent at
// once, the rest a few seconds later, and that a pod is about to start, or to be
// ready, when there is nothing else to tell, ten a second: of a hundred that start, few are sent it. How
// a deleted pod ended is sent once nothing of it is left, or a second later. A server that fails is asked by one request at a time, ever more rarely.
package outbox
