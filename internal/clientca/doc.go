// Package clientca reads the file of certificate authorities that sign client certificates. The
// kubelet's server verifies clients with it, and a new configuration is rejected if its file cannot
// be read.
package clientca
