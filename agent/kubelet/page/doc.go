// Package page is a web page that shows how the node is to a person nearby: pods, what they
// use, the last hour of the machine, events, logs, and what needs attention. It only reads.
//
//	browser on the device --127.0.0.1:statusPagePort--> localhost only -.
//	browser elsewhere --port 10250, /page/, node's own authentication---+--> Page
//	                                                                    |
//	   assets (embedded)    data: one JSON document     log: text of one container
//	                               |                          |
//	                 the agent's local API, called in the process: nothing is known here
//	                 of pods but what that says, and of it only what is shown is passed on
//
// Nothing runs while it is off. While it is on, one reading of the machine (not of pods) is
// taken every Interval and kept for an hour, in memory.
//
// Texts of pods, events and logs are hostile: they travel as JSON and plain text, are put in
// the page as text only, and the page may run and load nothing but its own files.
package page
