// Package pulls records the credentials with which each image was pulled, and decides whether
// a pod may use an image that is present, like a kubelet with KEP-2535.
// https://kubernetes.io/docs/concepts/containers/images/#ensureimagepullcredentialverification
//
//	worker: image present --May--> policy --verification needed--> records of the image
//	                                  |                             |         |
//	                                  v                             v         v
//	                             pod may use it <--same Secret or hash,   else: pull,
//	                                              or same account       the registry decides
//	worker: a pull --Begin--> intent --> PullImage --Pulled--> record, in edge/store
//	                                          `-----Failed--> none
//
// An image without a record counts as preloaded: it came from an archive, or the operator has loaded it. Before a
// pull with credentials starts, an intent is stored. Without the intent, an image whose pull was interrupted by a
// power cut would seem preloaded. Settle stores a record without an owner for such an image.
//
// A record contains no credential. It contains the identity of the Secret and a hash keyed with the store's key. For
// a credential provider plugin that got a token, it contains the service account instead (KEP-4412). The node's own
// credentials, from its docker configuration or from plugins without tokens, are valid for every pod.
package pulls
