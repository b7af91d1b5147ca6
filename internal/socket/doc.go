// Package socket listens on the unix sockets of the agent. While the agent runs, another program
// may remove a socket, alone or with its directory (rm -rf /run/islet), or hide the socket by a
// mount. The package then creates the socket again.
//
//	Listen(path) --> Accept, Accept ...      from the present socket at the path
//	                   ^
//	Run: inotify, mountinfo --> check: does it exist? --no--> OnLost, then a new socket
//
// Run waits for events of the kernel. It uses no CPU while nothing is removed or mounted.
//
// A socket that another process serves is never replaced. The mode of a socket is 0600, so only
// root and the agent's own user can connect. ListenLocal also checks the credentials of each peer.
package socket
