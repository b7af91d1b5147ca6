// Package machine says what is so of the machine that the agent runs on: to pods its
// name, addresses and resolv.conf, to admission what it has, to the Node object and
// its events all that a kubelet reports.
//
//	configuration, host --> Machine --> translate, admit, status, link
//	Machine, runtime, health --> Reporter --> Node object, events
package machine
