// Package cli is the commands for the person at the device. Each is one HTTP
// request, or a stream, to the agent's unix socket (package server).
//
//	main --> Main --> command table --> run --> client --> /run/islet/islet.sock
//	                       |                      |
//	                  help, completion     tables, progress, terminal
package cli
