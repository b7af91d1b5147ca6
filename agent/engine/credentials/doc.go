// Package credentials returns the registry credentials of a pod, in a kubelet's order: the
// pod's pull secrets, the docker configuration of the node, the credential provider plugins.
//
//	                       .--> pull secrets (edge/object)            read at once
//	worker --Keyring(pod,--+--> docker configuration of the node      read at once
//	         image)        '--> plugins that match the image          run when a pull needs them
//	                              |
//	        cache <--credentials-- plugin <--request, stdin-- service account token (edge/object)
//
// Package keyring decides which credentials match an image. The worker decides which ones it tries (pull_credentials.go).
//
// A plugin is a program that the operator installs. It runs only if an image must be pulled and the other credentials
// were not sufficient. Its run time, its output, and the number of parallel calls are limited, and identical calls
// share one process. The error of a plugin is logged, and is part of the pull's event. It does not affect other
// plugins and pulls.
//
// https://kubernetes.io/docs/tasks/administer-cluster/kubelet-credential-provider/ (KEP-2133),
// service account tokens for plugins: KEP-4412.
package credentials
