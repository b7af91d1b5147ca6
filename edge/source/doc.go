// Package source reads the pods of this node. They come from manifests in a directory, in a file or at a URL, and from the API server. Each
// source delivers its full set to one sink. After that, the source for the API server delivers only changes. If the server supports it, one
// request lists and watches the pods.
//
//	inotify --events--> wait until quiet ----.
//	          fileCheckFrequency ------------+--> Directory: scan --> changed? --.
//	                                                                             +--> Sink.Set(pods, problems)
//	          httpCheckFrequency, back-off ----> URL: GET, if changed -----------+    or Sink.ReportFailure(problems)
//	                                                                             |
//	               list, once and after 410 ---> API: all pods bound to this node'
//	               watch ----------------------> API: changes --> Sink.Update(pods, gone)
//	                                                          --> Observer (statuses, mirror pods)
//
// An error never ends a pod. An unreadable manifest is reported as a Problem with its origin, and the sink keeps the known pods of that
// origin, also after a restart. A directory may be unreadable, or a server may not answer. Then the source only reports the reason, and all
// its pods are kept.
//
// A pod of the API server is identified by its UID. All other fields may change. The pod ends when the server deletes the pod, or no longer
// has the pod.
//
// A pod of the API server may be too large for the node. Its SourcePod then has the identity of the pod without its spec. A new pod of this
// kind is rejected, and a known pod keeps its former spec. The other pods are not affected.
//
// A pod from a manifest ends when its file is removed or renamed, or when it is missing from the list at the URL. A file without pods is
// a problem, because a power cut can leave an empty file.
package source
