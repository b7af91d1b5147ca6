// Package page serves a web page with the state of the node: pods and their resource use, the resource use of the machine
// in the last hour, events, logs, and problems. It is read-only.
//
//	browser on the device --127.0.0.1:statusPagePort--> localhost only -.
//	browser elsewhere --port 10250, /page/, node's own authentication---+--> Page
//	                                                                    |
//	   assets (embedded)    pages: HTML that is made here      log: text of one container
//	                               |                                 |
//	             the agent's local API, called in this process: the page has no other
//	             source but the sensors of the machine, and passes on only the fields that it shows
//
// The files view.go, overview.go, podview.go and netview.go write the pages, so that a browser without JavaScript shows them. The
// script page.js asks for the same page again, and carries the differences over.
//
// If the page is disabled, nothing runs. If it is enabled, the machine (but not its pods) is measured every Interval, and
// the readings of the last hour are kept in memory and in a file in the run directory. Everything else is read for a request.
//
// Text from pods, events and logs is not trusted. A markup escapes it, and replaces control characters. The page may
// load and run only its own files.
package page
