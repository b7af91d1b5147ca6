// Package sources is where wanted pods come from, but for the API server: the directory
// of manifests, the URL, and what a person applies. It says which of them have spoken:
// nothing is torn down as an orphan until its own source has.
//
//	directory, URL --decode--> Sink --full set--> desired
//	                             '--spoke for the first time--> Spoke
package sources
