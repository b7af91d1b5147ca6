// Package command has what every command of islet needs:
//
//	table of package cli --> Command --> Setup(Tool, flags) --> Runner(arguments) --> error --> exit code
//	                                           ^
//	          Env, output, socket -------------'
//
// A Tool is one run of a command. It has no methods: the packages client and terminal have functions for it.
package command
