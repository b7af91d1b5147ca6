// Package selftest implements the command islet self-test. Before this program is installed, the command checks
// whether it can run on this machine with the configuration of the agent that staged it.
//
//	update of the running agent --starts--> islet-VERSION.new self-test
//	                                                |
//	          database, shim: in a temporary directory
//	          command line and files of the agent --'--> 0 and the version: the trial begins
//	                                                 |
//	                                                 '--> UnfitExit: the version does not fit; 1: it may fit later
package selftest
