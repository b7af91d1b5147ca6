// Package update prepares the program of another version for a trial. It fetches the archive, verifies its
// signatures, unpacks the program next to the installed one, and runs its self-test. It does not change the installed
// program.
//
//	FILE or URL + ".release" --> release.Release: signed, of this architecture, newer, not known to fail
//	FILE or URL --Save--> STATE/update/archive --Extract--> DIR/islet-*.new --self-test--> Staged
//	                                                         |
//	                    a successful trial (agent/change/configure): Install, one rename
//
// A followed index (package internal/rollout) decides when the node takes a version, and which archive that is:
//
//	INDEX --> rollout.Index: signed, not older than the last one --Decide--> due: the archive beside it, as above
//	                                                                 |
//	                                                                 '--> Status, a metric, and when to look again
//
// The program is staged in the directory of the installed one, so that a single rename installs it. Package release
// protects against forged releases. Package download limits the duration of a fetch, for servers that stall or are very
// slow, and rejects redirects to http. This package checks the free disk space before it writes. It limits the time
// and memory of the self-test.
package update
