// Package servertest is a node without containers, for the tests of what talks
// to package server: pods in memory, logs in files, streams that echo.
package servertest
