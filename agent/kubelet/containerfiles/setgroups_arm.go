package containerfiles

import "golang.org/x/sys/unix"

// setgroups is the number of the system call setgroups with group IDs of 32 bits.
const setgroups = unix.SYS_SETGROUPS32
