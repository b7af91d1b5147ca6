// Package clitest helps to test the commands:
//
//	test --> Run(cli.Main) --> command --> agent of servertest, with the pods of Node
//	  ^                          |
//	  '-- Check <-- Result <-----'
package clitest
