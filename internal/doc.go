// Package internal contains the leaf packages. Every part of islet may import them, and they import
// no other part. They are the configuration (config), the types of the local socket (api), and
// small concepts such as backoff (retry) and crash-safe file writes (durable).
package internal
