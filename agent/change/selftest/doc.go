// Package selftest is the command islet self-test: it checks whether this program can run on this
// machine, before it is installed.
package selftest
