// Package sources runs all sources of desired pods except the API server: the manifest directory, the manifest URL,
// and locally applied objects. It records which of them have reported their pods. A pod is not removed as an orphan
// before its source has reported.
//
//	directory, URL --decode--> Sink --full set--> desired
//	                             '--spoke for the first time--> OnFirstReport
package sources
