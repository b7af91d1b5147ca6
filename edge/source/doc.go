// Package source reads the pods of this node. They come from manifests in a directory, in a file or at a
// URL, and from the API server. Each source delivers its full set to one sink. After that, the source for
// the API server delivers only changes. One request lists and watches its pods, if the server supports that.
//
//	inotify --events--> wait until quiet ----.
//	          fileCheckFrequency ------------+--> Directory: scan --> changed? --.
//	                                                                             +--> Sink.Set(claims, problems)
//	          httpCheckFrequency, back-off ----> URL: GET, if changed -----------+    or Sink.ReportFailure(problems)
//	                                                                             |
//	               list, once and after 410 ---> API: all pods bound to this node'
//	               watch ----------------------> API: changes --> Sink.Update(claims, gone)
//	                                                          --> Observer (statuses, mirror pods)
//
// An error never ends a pod. An unreadable manifest is reported as a Problem with its origin, and the sink keeps the known pods of that
// origin, also after a restart. If a source cannot read its set at all, for example because a directory cannot be listed or a server does
// not answer, it only reports the reason.
//
// A pod of the API server is identified by its UID. All other fields may change. It ends when the server deletes it, or no longer has it.
//
// A pod from a manifest ends when its file is removed or renamed, or when it is missing from the list at the URL. A file without pods is
// a problem, because a power cut can leave an empty file.
package source
