// Package page serves a web page with the state of the node: pods and their resource use, the resource use of the machine
// in the last hour, events, logs, and problems. It is read-only.
//
//	browser on the device --127.0.0.1:statusPagePort--> localhost only -.
//	browser elsewhere --port 10250, /page/, node's own authentication---+--> Page
//	                                                                    |
//	   assets (embedded)    data: one JSON document     log: text of one container
//	                               |                          |
//	             the agent's local API, called in this process: the page has no other
//	             source, and passes on only the fields that it shows
//
// If the page is disabled, nothing runs. If it is enabled, the machine (but not its pods) is measured every Interval, and
// the readings of the last hour are kept in memory.
//
// Text from pods, events and logs is not trusted. It is sent as JSON or plain text, and inserted into the page only as
// text. The page may load and run only its own files.
package page
