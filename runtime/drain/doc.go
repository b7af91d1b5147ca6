// Package drain copies the output of a process to its reader and decides when the output is
// complete. It is used for commands in containers, containers' logs and attached readers.
//
//	process --pipe or terminal--> one goroutine for each --> io.Writer (a client, a log)
//
//	the process runs      the reader sets the pace: a full pipe blocks the process
//	the process has ended everything in the pipe is delivered, however slow the reader is
//	  all writers closed    complete
//	  empty for a second    complete: children that still have the pipe open are ignored
//	  the reader failed     LostError
//	  the caller's ctx      complete once the process's own output is delivered, else LostError
//
// No timer limits the delivery of bytes that the process itself has written.
package drain
