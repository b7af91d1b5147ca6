// Package crilog writes container logs in the CRI log format and rotates them like a kubelet. Each
// line of output becomes one line of the log.
//
//	pipe --> Stream.Write --> "2026-01-02T15:04:05.123456789Z stdout F text" --> 0.log
//	                                                        full? rename to 0.log.20260102-150405
//
// A rotation renames the file. A reader sees all lines if it reads its open file to the end and
// then opens the path again.
package crilog
