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
// The files view.go, overview.go, podview.go and netview.go write the pages as complete HTML, so that a browser without
// JavaScript can show them. The script page.js requests the same page again from time to time, and updates the parts that differ.
//
// If the page is disabled, the package runs nothing. If the page is enabled, the package measures the machine, but not its
// pods, every Interval. It keeps the readings of the last hour in memory, and in a file in the run directory. All other data
// is read when a request needs it.
//
// Text from pods, events and logs is not trusted. The type markup escapes such text, and replaces control
// characters. The page may load and run only its own files.
package page
