// Package pulls remembers by whose credentials images were pulled, and decides whether a
// pod may use one that is here, as a kubelet does since KEP-2535.
// https://kubernetes.io/docs/concepts/containers/images/#ensureimagepullcredentialverification
//
//	worker: an image is here --May--> policy --must be proven--> records of the image
//	                                     |                        |         |
//	                                     v                        v         v
//	                                 may use it   <--same Secret or hash,  else: pull,
//	                                 |         or same account       the registry decides
//	worker: a pull --Begin--> intent --> PullImage --Pulled--> record, in edge/store
//	                                          `-----Failed--> none
//
// An image without a record came from an archive or by the hand of the operator: it is
// preloaded. So that no power cut makes a pulled image look like that, a pull with
// credentials is noted before it begins (the intent); Settle makes a record, of nobody's,
// of an image that came by a pull that was broken off.
//
// Records hold no credentials: only where the Secret is and a hash that needs the store's
// key, or the service account whose token a credential provider plugin got (KEP-4412). What
// the node itself has, in its docker configuration or from plugins without tokens, is for
// every pod.
package pulls
