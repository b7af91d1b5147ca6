// Package sources runs the sources of desired pods other than the API server: the directory of
// manifests, the URL, and locally applied objects. It records which of them have reported their
// pods: a pod is not removed as an orphan before its own source has.
//
//	directory, URL --decode--> Sink --full set--> desired
//	                             '--spoke for the first time--> Spoke
package sources
