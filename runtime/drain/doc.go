// Package drain copies the output of a process to a reader (an io.Writer) and determines when the
// output is complete. It is used for commands in containers, for container logs and for attached
// clients.
//
//	process --pipe or terminal--> goroutine --> io.Writer (a client, a log)
//
//	the process runs      the reader sets the pace: a full pipe blocks the process
//	the process has ended the content of the pipe is delivered, even to a slow reader
//	  all writers closed    complete
//	  empty for a second    complete: child processes that have the pipe open are ignored
//	  the reader failed     LostError
//	  ctx has ended         complete if the process's own output is delivered, else LostError
//
// There is no time limit for the output of the process itself.
package drain
