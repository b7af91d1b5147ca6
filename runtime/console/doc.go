// Package console receives the terminal of a process from an OCI runtime. The OCI runtime creates the
// terminal inside the container, and sends its master through a unix socket.
//
//	OCI runtime --socket "tty" in a directory--> Receive --> master of the terminal
//
// The receiver reads the master itself, so no program is between the process and its reader. crun exec
// without a console socket copies the output to its own standard output, and ends as soon as the process
// has ended. It then loses the output that it has not copied yet.
package console
