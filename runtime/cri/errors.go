package cri

import "strconv"

func (e ExitError) Error() string {
	return "command terminated with exit code " + strconv.Itoa(int(e.Code))
}
