// Package link maintains the node's connection to its API server. It has three parts: the node's
// credentials, a lower bound of the current time, and the state of the link.
//
//	kubeconfig, pki/ --read, watched--> identity --*rest.Config--> kube.Client --> server
//	bootstrap kubeconfig --CSR, rotation--^                          |      ^
//	                                                      every result      | admits requests
//	                                                                 v      |
//	store <--floor-- clock <--Date, NotBefore-- health --State--> Changed, gate
//	                   |                          ^-- network changed
//	                   '--Now--> TLS, expiry
//	pki/kubelet-server-*, kubelet.crt --> servingCert --ServingCertificate--> port 10250
//
// # State
//
//	         a request got no answer,                    probe fails
//	         or a suspicious one                         (with new connections too)
//	Up ------------------------------> Connecting ------------------------> Down
//	^                                      |                                |  | probe fails:
//	'--------- probe: server ready --------'<------- probe after back-off --'<-' longer back-off
//
// The state is derived from the results of the node's own requests, so an idle node sends no additional requests. Only a suspicion causes a
// probe, which is GET /readyz. While the state is Down, every request fails immediately, and only the probe is sent. Requests therefore
// cannot flood a server that has just become available again, and a retry costs nothing. While the state is Connecting, requests wait for a
// short time. Only the answer of an API server sets the state to Up. The reason NotAPIServer stands for all other answers, such as a
// redirect or the page of a captive portal or proxy.
//
// # Renewal of certificates
//
// The node uses a new client certificate only after the API server has accepted it. Until then, the old certificate stays in use. If the
// server rejects the certificate in use later, the node tries the other stored pair, and uses that pair if the server accepts it. A
// certificate may be due for renewal as soon as it is issued, because a clock is wrong or because the signer has left out a name of the
// node. It is then renewed at growing intervals, from a minute up to a tenth of its life, and at most a day. The intervals
// of bootstraps grow up to ten minutes, and end when the bootstrap kubeconfig changes.
//
// # Time
//
// A board without a real-time clock boots in 1970, a board with a broken clock boots in any year, and the server's clock may be wrong too.
// Two errors must be avoided: rejecting a certificate as not valid yet although it is valid, and using an expired certificate. So Now is
// the latest of three times: the machine's clock, a lower bound (the floor), and the NotBefore of certificates of the cluster's CA (the
// hint). Only the Date of a verified server raises the floor, and only if it is within the validity of the server's certificate. Small
// steps are accepted immediately. Large steps are accepted when several answers agree. The floor is stored at most once an hour. It moves
// back if several answers agree on an earlier time. The machine's clock never raises the floor. Otherwise a single wrong time could leave
// the floor in the future forever. Nothing is deleted because of a date. An expired certificate is kept, and is used again if the time is
// corrected to an earlier one.
//
// A node without an API server has another lower bound, the signed time: the time at which a bundle was signed. The node records this time
// after it has verified the signatures, when the trial of the bundle begins. The signer's clock may be wrong too, and no server corrects
// it. So the signed time is not used while the kernel's clock is synchronized, and not while it is more than 7 days ahead of a machine's
// clock that is set. Therefore it never makes the node reject a certificate that is valid for 7 more days by the machine's clock. A bundle
// that is refused or already in use does not raise the bound, so that a reset lasts. An update index does not raise it: its keys may only
// open rings and pause.
package link
