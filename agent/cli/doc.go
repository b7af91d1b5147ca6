// Package cli implements islet's commands for users. Most commands send an HTTP request to the agent's unix
// socket, which package server serves.
//
//	main --> Main --> table of commands --> flags --> package of the command --> client --> /run/islet/islet.sock
//	                       |                                    |
//	      help, completion, manual pages                     terminal
//
// This package has the table of commands and all that is generated from it. Each row names a function of the package that
// implements the command:
//
//	pods     pods, describe, events, wait, restart
//	logs     logs
//	session  exec, attach, debug, port-forward, cp
//	objects  apply, delete, check, objects
//	images   images, system df
//	node     status, devices, clock, shutdown, accept, takeover, doctor, key, version; below it top and support
//	change   config, update
//	bundle   bundle
//	join     join
//
// All of these use the packages command, client and terminal.
package cli
