// Package selftest implements the command islet self-test. It checks whether this program can run on this machine,
// before it is installed, with the configuration of the agent that staged it.
package selftest
