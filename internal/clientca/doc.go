// Package clientca reads the file with the certificate authorities that sign client certificates. The kubelet API uses it
// to verify its clients. A new configuration whose file cannot be read is rejected.
package clientca
