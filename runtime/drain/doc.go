// Package drain moves the output of a process to its reader and decides when that
// output is complete. Commands in containers, containers and attached readers share it.
//
//	process --pipe or terminal--> one goroutine for each --> io.Writer (a client, a log)
//
//	the process runs      the reader sets the pace: a full pipe holds the process up
//	the process has ended everything in the pipe is delivered, however slow the reader is
//	  all writers closed    complete
//	  empty for a second    complete: a child that still holds the pipe is left behind
//	  the reader failed     LostError
//	  the caller's ctx      complete once the process's own output is delivered, else LostError
//
// No timer ends the delivery of bytes that the process itself has written.
package drain
