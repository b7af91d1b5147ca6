// Package process is what the agent is to the host that it runs on: one process with
// limits of its own, that holds two directories, writes a log, ends in bounded time and
// reports to a service manager.
package process
