// Package cli implements islet's commands for users. Most commands send an HTTP request to the agent's unix
// socket, which package server serves.
//
//	main --> Main --> command table --> run --> client --> /run/islet/islet.sock
//	                       |                      |
//	                  help, completion     tables, progress, terminal
package cli
