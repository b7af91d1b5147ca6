// Package link is the node's connection to its API server: the node's credentials, a lower bound
// of the current time, and whether the server answers.
//
//	kubeconfig, pki/ --read, watched--> identity --*rest.Config--> kube.Client --> server
//	bootstrap kubeconfig --CSR, rotation--^                          |      ^
//	                                                      every result      | admits requests
//	                                                                 v      |
//	store <--floor-- clock <--Date, NotBefore-- health --State--> Changed, gate
//	                   |                          ^-- network changed
//	                   '--Now--> TLS, expiry
//	pki/kubelet-server-*, kubelet.crt --> serving --ServingCertificate--> port 10250
//
// # State
//
//	         a request got no answer,                    probe fails
//	         or a suspicious one                         (with new connections too)
//	Up ------------------------------> Connecting ------------------------> Down
//	^                                      |                                |  | probe fails:
//	'--------- probe: server ready --------'<------- probe after back-off --'<-' longer back-off
//
// The state follows from the results of the node's own requests, so an idle node sends nothing to
// learn it. Only a suspicion causes a probe, GET /readyz. While the state is Down every request
// fails at once and only the probe leaves the node. So a server that returns is not flooded by
// waiting requests, and callers may retry at no cost. While the state is Connecting, requests wait
// for a moment. Only an API server's answer makes the link Up. The page of a captive portal or a
// proxy, a redirect, and any answer to the probe other than "ok" is NotAPIServer.
//
// # Time
//
// A board without a real-time clock boots in 1970, one with a broken clock in any year, and the
// server's clock may be wrong too. Two errors must be avoided: rejecting a valid certificate as not
// valid yet, and using an expired one. So Now is the latest of the machine's clock, a floor, and
// the hints of certificates of the cluster's CA. The floor comes only from Dates of verified
// servers that are within the validity of their certificates. Small steps are accepted at once,
// large ones when several answers agree. The floor is stored at most hourly, and moves back if
// several answers agree on that. The machine's clock never raises the floor, because a wrong
// future would stay for ever. Nothing is deleted because of a date: an expired certificate is
// kept, and is used again when the time turns out to be different.
package link
