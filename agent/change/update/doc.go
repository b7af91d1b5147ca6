// Package update has the program of another version ready to be tried: fetched, known to be
// signed by whom the node trusts, unpacked beside the one that is installed, and able to run
// here. It changes nothing that runs.
//
//	FILE or URL + ".release" --> release.Release: signed, of this architecture, newer, not known to fail
//	FILE or URL --Save--> STATE/update/archive --Extract--> DIR/islet-*.new --self-test--> Staged
//	                                                         |
//	                    a trial (agent/change/configure) went well: Install, one rename
//
// What is staged lies in the directory of the installed program, so that one rename puts it in
// its place. Who may abuse it: see package release; further a link that stops in the middle
// or sends a byte a minute (a fetch has time for what a slow link needs, and no more), a
// server that redirects to another protocol, a full disk (there has to be room for all of it
// before), a program that hangs or eats in its self-test (time and memory are bounded).
package update
