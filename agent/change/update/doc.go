// Package update prepares the program of another version for a trial: it fetches the archive,
// verifies its signatures, unpacks it beside the installed program, and runs its self-test. It
// does not change the running program.
//
//	FILE or URL + ".release" --> release.Release: signed, of this architecture, newer, not known to fail
//	FILE or URL --Save--> STATE/update/archive --Extract--> DIR/islet-*.new --self-test--> Staged
//	                                                         |
//	                    a successful trial (agent/change/configure): Install, one rename
//
// The staged program is in the directory of the installed one, so that one rename installs it.
// For attacks on releases see package release. This package also handles: a link that stalls or
// sends a byte a minute (the time of a fetch is limited), a server that redirects to another
// protocol, a full disk (the space is checked before), and a program that hangs or uses too much
// memory in its self-test (time and memory are limited).
package update
