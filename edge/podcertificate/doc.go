// Package podcertificate obtains certificates for pods with podCertificate sources in projected volumes.
//
//	pod --Prepare--> projection, one for each source
//	                   |  new key, PodCertificateRequest --create--> API server --> signer
//	                   |  <--------------watch by its name------------ issued, denied, failed
//	                   '--> store (sealed) --> Credentials --> files
//	                            '--Changed(UID)--> files of running pods
//
// States of a projection, which are derived from the stored data:
//
//	nothing --> requested --issued--> fresh --beginRefreshAt--> fresh and requested --issued--> fresh
//	                '--denied, failed--> over: the signer's decision is final for this pod
//
// Each projection has one goroutine, and only that goroutine changes it. The goroutine sleeps until the certificate is due for renewal. A
// watch exists only while a request is open. The key is created on the node. It exists only in memory, in the sealed store and in the pod's
// volume. The state is stored. After a restart, with or without a link, a pod therefore has the same certificate, and an open request
// continues. A certificate that could not be renewed stays in the volume, even after its expiry. The programs that verify it decide whether
// to accept it.
//
// If the clock is wrong, a certificate may be due for renewal as soon as it is issued. It is then renewed at growing intervals, from a
// minute up to a quarter of the time from beginRefreshAt to its expiry.
//
// The package implements a hook in the life of a pod. Prepare waits only a few seconds for the signer. If a user must approve the request,
// the answer may take days. Until then, the pod reports that it waits for the certificate.
//
// See https://github.com/kubernetes/enhancements/tree/master/keps/sig-auth/4317-pod-certificates
// https://kubernetes.io/docs/concepts/storage/projected-volumes/#podcertificate
package podcertificate
