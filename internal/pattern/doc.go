// Package pattern compiles regular expressions when they are used for the first time.
//
//	var name = pattern.New(`^[a-z]+$`) --first call of name()--> *regexp.Regexp
//
// Every islet command starts a process, which uses only a few of the expressions. Compiling one needs time and memory, up to 300 KiB for an
// expression with a large repetition such as {1,300}. So no package of islet may compile an expression during its initialization.
// TestPatterns checks this. It also checks that each expression is valid, because New does not.
package pattern
