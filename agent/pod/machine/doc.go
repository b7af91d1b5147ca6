// Package machine provides facts about the machine that the agent runs on: to pods its name, addresses and
// resolv.conf, to admission its resources, and to the Node object and its events everything that a kubelet reports.
//
//	configuration, host --> Machine --> translate, admit, status, link
//	Machine, runtime, health --> Reporter --> Node object, events
package machine
