// Package regular opens files by names that somebody may have given or replaced: a
// configuration that was sent, a person, a program. What is no regular file is refused, as a
// pipe could hold up who opens it and a device never end, and nothing is read without a bound.
//
// Symlinks are followed: the names are root's. For files that pods and images made see
// package internal/untrusted.
package regular
