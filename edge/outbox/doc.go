// Package outbox reports the pods of this node to the API server. It sends their statuses, creates mirror
// pods for static pods, removes deleted pods that have ended, and sends events.
//
//	status.Compute --Put--> newest status of each pod ---.
//	worker --Finish--> nothing of the pod is left -------+--if they differ--> PATCH pods/status
//	source.API --PodsListed, PodSeen, PodGone-->         |                    POST, DELETE pods (mirrors)
//	                             the server's version ---'                    DELETE pods (ended) --> Forget
//
// There is no queue of statuses. The outbox sends the difference between the newest status and the server's version. A status that
// changed ten times while the link was down is therefore sent once. After a restart of the agent, the statuses come from the store and
// the server's versions from the first list, and only the differences are sent.
//
// Changes that users wait for are sent at once: phase, readiness, states of containers, addresses. Other changes are sent a few seconds
// later. A starting pod has a status for each step: the sandbox is ready, an init container has ended, containers are running but not
// ready. A step is sent when it has lasted a second, so that watchers see it. Shorter steps are merged, for at most three seconds. A budget
// for the whole node limits the rate of steps when many pods start at once. Before the sandbox of a pod is ready, the status of the pod
// only tells that the pod is about to start. Such a status is sent when there is nothing else to send. At most ten such statuses are sent
// each second. When a hundred pods start, most of them have a newer status before it is their turn. The last status of a deleted pod is
// sent when nothing of the pod is left on the node, but at the latest after a short delay. After a failure of the server, only one request
// at a time is sent, with a back-off.
//
// An error such as 500 may concern only some objects, for example because a webhook of their namespace cannot be called. Statuses that have
// failed in this way wait with a back-off that they share, one request at a time, while the others are sent. Their namespaces take turns.
// After such a failure, the other statuses of the namespace wait with another back-off, until the server has stored one of them. The
// next one is sent when the server has answered, or after three seconds. If the server fails for two namespaces and has stored nothing in
// between, all statuses wait, as after other failures of the server. The same rules apply to events, which are sent one at a time anyway.
// When the link is up again, the next attempt is made at once, but the back-offs stay.
//
// An event is given up after twelve such failures. A failure counts only if the server has accepted another event since the previous one,
// so no event is lost in an outage. A status is never given up, except the last status of a deleted pod that the server rejects for a
// minute because of its content.
package outbox
