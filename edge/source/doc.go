// Package source reads the pods of this node from where people put manifests, a
// directory or file and a URL, and from the API server. Each source tells its whole
// set to one sink; the API server's tells only changes after that.
//
//	inotify --events--> quiet for a moment --.
//	          fileCheckFrequency ------------+--> Directory: scan --> changed? --.
//	                                                                             +--> Sink.Set(claims, problems)
//	          httpCheckFrequency, back-off ----> URL: GET, if changed -----------+    or Sink.Fail(problems)
//	                                                                             |
//	               list, once and after 410 ---> API: all pods bound to this node'
//	               watch, for ever ------------> API: what changed --> Sink.Update(claims, gone)
//	                                                               --> Observer (statuses, mirror pods)
//
// An error never ends a pod. What a file or URL cannot tell is a Problem with its
// origin, and the sink keeps the pods of an origin that has a problem as it knows
// them, also over a restart. When a source cannot tell its set at all (a directory
// that cannot be listed, a server that does not answer) it only reports why.
//
// A pod of the API server stays the same pod whatever of it changes, as long as its UID
// does; it ends when the server says so or no longer has it.
//
// A pod is ended when its manifest is gone: the file removed or renamed, the pod
// missing from the list that the URL serves. A file without any pod in it is a
// problem, for that is what a power cut makes of a file being written.
package source
