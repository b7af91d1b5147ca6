// Package clientca reads the authorities that sign client certificates, for who verifies such,
// and for who is asked to take a configuration with another file of them.
package clientca
