// Package start turns the process into an agent: it reads the command line and the
// configuration, prepares the process, runs the agent until a signal ends it, and
// returns the exit code. Package agent builds and runs the agent itself.
//
//	main --> start.Main --configuration--> agent.Run
//	             ^                             |
//	             +---- again: a new role ------+
package start
