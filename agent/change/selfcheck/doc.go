// Package selfcheck implements the command islet self-test. Before this program is installed, the command checks
// whether it can run on this machine with the configuration of the agent that staged it.
//
//	agent, package update --starts--> islet-VERSION.new self-test
//	                                             |
//	database, shim (in a temporary directory) ---+--> 0 and the version: the trial begins
//	the agent's command line and files ----------'--> UnfitExit: the version does not fit; 1: it may fit later
package selfcheck
