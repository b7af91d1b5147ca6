// Package page is a web page with the node's state: pods, their resource use, the last hour of the
// machine, events, logs, and problems. It is read-only.
//
//	browser on the device --127.0.0.1:statusPagePort--> localhost only -.
//	browser elsewhere --port 10250, /page/, node's own authentication---+--> Page
//	                                                                    |
//	   assets (embedded)    data: one JSON document     log: text of one container
//	                               |                          |
//	             the agent's local API, called in this process: the page has no other
//	             source, and passes on only the fields that it shows
//
// Nothing runs while the page is off. While it is on, one measurement of the machine (not of pods)
// is taken every Interval and kept for an hour, in memory.
//
// Texts of pods, events and logs are not trusted: they are sent as JSON and plain text, inserted as
// text only, and the page may load and run only its own files.
package page
