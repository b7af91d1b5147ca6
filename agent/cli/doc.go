// Package cli implements the commands for users of the device. Each command is an HTTP request or
// stream to the agent's unix socket (package server).
//
//	main --> Main --> command table --> run --> client --> /run/islet/islet.sock
//	                       |                      |
//	                  help, completion     tables, progress, terminal
package cli
