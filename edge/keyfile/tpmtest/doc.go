// Package tpmtest starts emulated TPMs for tests, with the program swtpm.
package tpmtest
