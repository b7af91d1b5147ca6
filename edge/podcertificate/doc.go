// Package podcertificate gets certificates for pods: those that podCertificate sources of
// projected volumes show.
//
//	pod --Prepare--> projection, one for each source
//	                   |  new key, PodCertificateRequest --create--> API server --> signer
//	                   |  <--------------watch by its name------------ issued, denied, failed
//	                   '--> store (sealed) --> Credentials --> files
//	                            '--Changed(UID)--> files of pods that run
//
// The states of a projection, which follow from what is stored:
//
//	nothing --> requested --issued--> fresh --beginRefreshAt--> fresh and requested --issued--> fresh
//	                '--denied, failed--> over: the signer's word is final for this pod
//
// Each projection has one goroutine, which alone changes it. It sleeps until the certificate
// is to be renewed, and costs nothing on the wire meanwhile; a watch lives only while a
// request is open. The key is made here, is in memory and in the sealed store, and leaves
// neither but into the pod's volume. What is stored outlives the agent: after a restart, with
// a link or without, a pod has the certificate that it had, and a request that is open is
// followed further. A certificate that could not be renewed is shown until it has expired and
// beyond: whom it is shown to decides what that means.
//
// It is a hook. Prepare waits for the signer, but not long: one that asks a person may take
// days, and the pod waits and says so.
//
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-auth/4317-pod-certificates
// https://kubernetes.io/docs/concepts/storage/projected-volumes/#podcertificate
package podcertificate
