// Package selftest implements the command islet self-test. Before this program is installed, the command checks
// whether it can run on this machine with the configuration of the agent that staged it.
package selftest
