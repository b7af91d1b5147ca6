// Package socket listens at the unix sockets by which programs of this machine reach the
// agent, and makes a socket again that somebody removed while the agent runs: with its
// directory (rm -rf /run/islet), or by a file system that was mounted over it.
//
//	Listen(path) --> Accept, Accept ...      from the socket that is at the path now
//	                   ^
//	Run: inotify, mountinfo --> look: is it there? --no--> Lost, then the socket anew
//
// Run waits for events of the kernel. It uses no CPU while nothing is removed or mounted.
//
// A socket at which another process answers is never replaced. Only root and the agent's own
// user can open a socket of this package; who connects is for its server to check.
package socket
