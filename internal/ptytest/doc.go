// Package ptytest opens pseudoterminals for tests.
//
//	the code under test --writes, reads--> theirs (/dev/pts/N) <--kernel--> ours (/dev/ptmx) <--reads, writes-- the test
package ptytest
