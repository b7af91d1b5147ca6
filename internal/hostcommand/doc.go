// Package hostcommand parses the flags of commands such as islet backup and islet setup, and computes their exit codes. These commands run
// without an agent. The flags of an agent may follow their own flags.
//
//	arguments --Flags.Take--> the command's own flags
//	                   |
//	                   '----> files and the agent's flags --> package config
//	error --Report--> a line for the user, and the exit code
//
// Package agent/cli/command has the other commands, whose flags pflag parses. Their exit codes are defined in this package.
package hostcommand
