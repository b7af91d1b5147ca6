package cri

import "strconv"

// Error returns the message that kubectl prints for the exit code.
func (e ExitError) Error() string {
	return "command terminated with exit code " + strconv.Itoa(int(e.Code))
}
