// Package pulsetest simulates lost peers of TCP connections in tests.
package pulsetest
