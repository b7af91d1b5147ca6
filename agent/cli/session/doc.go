// Package session has the commands that connect to a container:
//
//	terminal, pipes <--> exec, attach, debug <-- WebSocket --> agent <--> container
//	files <--> tar <--> cp <-- exec, or files of the agent --> agent <--> container
//	local ports <--> port-forward <-- SPDY --> agent <--> pod
package session
