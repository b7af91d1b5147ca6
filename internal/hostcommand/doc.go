// Package hostcommand has what the commands need that need no running agent, but take the flags of an agent after their own:
//
//	arguments --Flags.Take--> the command's own flags
//	                   |
//	                   '----> files and the agent's flags --> package config
//	error --Report--> a line for the user, and the exit code
//
// Package agent/cli/command has the other commands, whose flags pflag parses. Their exit codes are those of this package.
package hostcommand
