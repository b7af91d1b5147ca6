// Package selftest says whether this program can run on this machine at all, before anything
// depends on it: islet self-test.
package selftest
