package netns

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// dumpAttempts is the number of times that Dump calls its function.
const dumpAttempts = 3

// Dump calls a function that lists objects of the kernel. It repeats the call if the kernel has reported that the objects changed during
// the call: the result may then be incomplete. While many pods start or a network flaps, every attempt may fail.
func Dump(list func() error) (err error) {
	for range dumpAttempts {
		if err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return err
}
