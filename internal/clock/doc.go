// Package clock knows times that cannot be: those of a clock that nobody has set. A machine
// without one that runs on, such as most small boards, begins in 1970, or where a file says
// that it was, until a network tells.
package clock
