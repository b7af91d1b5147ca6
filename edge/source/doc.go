// Package source reads the pods of this node: from manifests in a directory, a file or at a URL,
// and from the API server. Each source delivers its full set to one sink. The API server's source
// delivers only changes after that.
//
//	inotify --events--> wait until quiet ----.
//	          fileCheckFrequency ------------+--> Directory: scan --> changed? --.
//	                                                                             +--> Sink.Set(claims, problems)
//	          httpCheckFrequency, back-off ----> URL: GET, if changed -----------+    or Sink.Fail(problems)
//	                                                                             |
//	               list, once and after 410 ---> API: all pods bound to this node'
//	               watch ----------------------> API: changes --> Sink.Update(claims, gone)
//	                                                          --> Observer (statuses, mirror pods)
//
// An error never ends a pod. A manifest that cannot be read is a Problem with its origin, and the
// sink keeps the known pods of that origin, also over a restart. If a source cannot read its set
// at all (the directory cannot be listed, the server does not answer), it only reports the
// reason.
//
// A pod of the API server is identified by its UID, whatever else of it changes. It ends when the
// server deletes it or does not have it any more.
//
// A pod from a manifest ends when the manifest is gone: the file was removed or renamed, or the
// pod is missing from the list at the URL. A file without any pod is a problem, because a power
// cut can leave an empty file.
package source
