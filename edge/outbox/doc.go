// Package outbox reports the pods of this node to the API server: their statuses, mirror pods for
// static pods, the removal of deleted pods that have ended, and events.
//
//	status.Make --Put--> newest status per pod ---.
//	worker ----Finish--> nothing is left on node -+--differs from--> PATCH pods/status
//	                                              |                  POST, DELETE pods (mirrors)
//	source.API --Listed, Seen, Gone--> as the ----'                  DELETE pods (ended) --> Forget
//	                                   server shows it
//
// There is no queue. The outbox sends the difference between the newest status and the server's
// version. So a status that changed ten times while the link was down is sent once. After a
// restart of the agent the store has the statuses and the first list has the server's versions,
// and only differences are sent.
//
// Changes that users wait for (phase, readiness, states of containers, addresses) are sent at
// once, other changes a few seconds later. A status that only says that the pod is about to start
// or to become ready is delayed, and at most ten a second are sent: of a hundred pods that start,
// few need it. The last status of a deleted pod is sent when nothing of the pod is left on the
// node, or a second later. A server that fails gets one request at a time, with a back-off.
package outbox
