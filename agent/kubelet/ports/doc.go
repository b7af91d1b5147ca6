// Package ports opens the TCP ports of a kubelet (10250, 10255 and 10248), and configures the access to them.
//
//	configuration, link --> Open --> listeners --Run(server)--> answers
package ports
