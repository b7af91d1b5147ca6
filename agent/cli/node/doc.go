// Package node has the commands for the node as a whole:
//
//	agent --> status, devices, clock, version --> text
//	shutdown, accept, takeover --> agent
//	agent, doctor, cleanup, key --> functions of Env, which need no running agent
//
// Below are top, which shows the usage of resources, and support, which writes the archive for a report of a problem.
package node
