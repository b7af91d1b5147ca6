// Package drain copies the output of a process to its reader and determines when the output is
// complete. It is used for commands in containers, for containers' logs and for attached readers.
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
// The bytes that the process itself has written are delivered without a time limit.
package drain
