// Package crilog writes container logs in the CRI's format, one line per line of output, and
// rotates them as a kubelet does.
//
//	pipe --> Stream.Write --> "2026-01-02T15:04:05.123456789Z stdout F text" --> 0.log
//	                                                        full? rename to 0.log.20260102-150405
//
// Rotation renames the file. A reader that reads its open file to the end and then opens the path
// again misses nothing.
package crilog
