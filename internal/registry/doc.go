// Package registry reads from and writes to registries. A registry may be hostile or broken.
//
//	image, bundle --> Client --> containerd's resolver, fetcher and pusher
//	                                   |  each request            ^  each response
//	                                   v                          |
//	                          PrepareRequest, authority      LimitBody
//	                                   |                          |
//	                                   '------> registry ---------'
//
// An authority sends the secrets of a registry only to this registry and to its token server, even after a redirect. LimitBody limits
// every response whose reader has no limit. The runtime has a different client (runtime/image) with mirrors and resumed downloads, which
// also uses the authorities and LimitBody. The Client in this package is for the commands that make bundles. It can also write, and it
// does not need Linux.
package registry
