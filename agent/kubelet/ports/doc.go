// Package ports opens the TCP ports of a kubelet, 10250, 10255 and 10248, and says who
// may use them.
//
//	configuration, link --> Open --> listeners --Run(server)--> answers
package ports
