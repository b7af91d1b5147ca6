// Package credentials finds what a pod may show to a registry, as a kubelet does: the pod's
// pull secrets, then the docker configuration of the node, then what credential provider
// plugins give.
//
//	                       .--> pull secrets (edge/object)            at hand
//	worker --Keyring(pod,--+--> docker configuration of the node      at hand
//	         image)        '--> plugins that match the image          asked when a pull needs them
//	                              |
//	        cache <--credentials-- plugin <--request, stdin-- service account token (edge/object)
//
// A plugin is a program of the operator. It runs only when an image is really pulled and
// nothing at hand was good enough; a node that cannot reach the registry and has the image
// runs none. What it does is bounded: a minute, a few hundred kilobytes, one call in flight
// for the same question, a few calls at all. A plugin that fails is told in the log and in
// the event of the pull; other plugins and other pulls go on.
//
// https://kubernetes.io/docs/tasks/administer-cluster/kubelet-credential-provider/ (KEP-2133),
// service account tokens for plugins: KEP-4412.
package credentials
