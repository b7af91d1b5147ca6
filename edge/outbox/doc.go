// Package outbox reports the pods of this node to the API server. It sends their statuses, creates mirror
// pods for static pods, removes deleted pods that have ended, and sends events.
//
//	status.Make --Put--> newest status per pod ---.
//	worker ----Finish--> nothing is left on node -+--differs from--> PATCH pods/status
//	                                              |                  POST, DELETE pods (mirrors)
//	source.API --Listed, Seen, Gone--> as the ----'                  DELETE pods (ended) --> Forget
//	                                   server shows it
//
// There is no queue of statuses. The outbox sends the difference between the newest status and the server's
// version. So a status that changed ten times while the link was down is sent once. After a restart of the
// agent, the store has the statuses and the first list has the server's versions. Again only differences
// are sent.
//
// Changes that users wait for are sent at once: phase, readiness, states of containers, addresses. Other
// changes are sent a few seconds later. A status that only means that the pod is about to start or to
// become ready is delayed, and at most ten of them are sent each second. When a hundred pods start, most of
// them have a newer status by then. The last status of a deleted pod is sent when nothing of the pod is
// left on the node, but at the latest after a short delay. After a failure of the server, only one request
// at a time is sent, with a back-off.
package outbox
