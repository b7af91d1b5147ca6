// Package internal contains the leaf packages. Every part of islet may import these packages. They
// import no other part of islet. They are the configuration (config), the types of the local socket
// (api), and small concepts such as backoff (retry) and crash-safe file writes (durable).
package internal
