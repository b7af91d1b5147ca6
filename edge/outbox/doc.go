// Package outbox reports the pods of this node to the API server. It sends their statuses, creates mirror
// pods for static pods, removes deleted pods that have ended, and sends events.
//
//	status.Make --Put--> newest status per pod ---.
//	worker ----Finish--> nothing is left on node -+--differs from--> PATCH pods/status
//	                                              |                  POST, DELETE pods (mirrors)
//	source.API --Listed, Seen, Gone--> as the ----'                  DELETE pods (ended) --> Forget
//	                                   server shows it
//
// There is no queue of statuses. The outbox sends the difference between the newest status and the server's version. A status that
// changed ten times while the link was down is therefore sent once. After a restart of the agent, the statuses come from the store and
// the server's versions from the first list, and only the differences are sent.
//
// Changes that users wait for are sent immediately: phase, readiness, states of containers, addresses. Other changes are sent a few
// seconds later. A status that only means that the pod is about to start or to become ready is delayed, and at most ten of these are sent
// each second. When a hundred pods start, most of them have a newer status by then. The last status of a deleted pod is sent when all
// resources of the pod on the node are gone, or after a short delay at the latest. After a failure of the server, only one request at a
// time is sent, with a back-off.
package outbox
