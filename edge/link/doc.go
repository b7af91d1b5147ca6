// Package link is the node's way to its API server: who the node is, what time it
// is at least, and whether the server answers.
//
//	kubeconfig, pki/ --read, watched--> identity --*rest.Config--> kube.Client --> server
//	bootstrap kubeconfig --CSR, rotation--^                          |      ^
//	                                                      every outcome     | may it try?
//	                                                                 v      |
//	store <--floor-- clock <--Date, NotBefore-- health --State--> Changed, gate
//	                   |                          ^-- network changed
//	                   '--Now--> TLS, expiry
//	pki/kubelet-server-*, kubelet.crt --> serving --ServingCertificate--> port 10250
//
// # State
//
//	         a request got no answer,                    probe fails
//	         or one that makes suspicious                (with new connections too)
//	Up ------------------------------> Connecting ------------------------> Down
//	^                                      |                                |  | probe fails:
//	'--------- probe: server ready --------'<------- probe after back-off --'<-' longer back-off
//
// Nobody asks the server anything to know the state: what the node's own requests
// meet tells it. Only a suspicion is settled by a probe, GET /readyz. While the state is
// Down every request fails at once, whoever makes it, and the probe is all that leaves
// the node; so a server that comes back is not met by everything that waited, and what
// callers do in their loops costs no byte. While Connecting requests wait for a moment.
// Only an API server's own answer makes the link Up: the page of a captive portal or a proxy,
// a redirect, and anything but "ok" to the probe is NotAPIServer.
//
// # Time
//
// A board without a clock of its own boots in 1970, one with a broken clock in any year,
// and a server may have one too. Two wrong conclusions must not be drawn: that a valid
// certificate is not valid yet, and that an expired one is still good. So Now is the later
// of the machine's clock, a floor, and what certificates of the cluster's CA suggest. The
// floor is made only of Dates of verified servers, within their certificates: small steps
// at once, large ones when several answers agree and the machine's clock is known to be
// behind. It is stored at most hourly, and goes back when answers agree on that. The machine's
// clock itself never raises the floor: a wrong future would be believed for ever. Nothing
// is deleted because of a date: an expired certificate stays, and is used again when
// the time turns out to be another.
package link
