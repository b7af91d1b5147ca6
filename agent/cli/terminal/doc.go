// Package terminal writes the output of the commands:
//
//	cells    --> Table ------.
//	values   --> Page -------+--> colours, printable text --> standard output
//	lines    --> LineWriter -+
//	object   --> PrintObject '
//	progress --> Progress ------> bars on a terminal, else lines --> standard error
//
// TTY sets the mode of the user's terminal. Repeat prints an output again and again, for -w.
package terminal
