package containerfiles

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A user contains the IDs and capabilities of a container's process, which the kernel compares with the owner and the
// mode of a file.
type user struct {
	uid, gid     int // effective IDs, as on the host
	groups       []uint32
	capabilities uint64 // effective; only fileCapabilities matter
}

// fileCapabilities are the capabilities that a thread loses when its file system user ID (fsuid) changes from 0 to another
// ID. They permit access to files of other users.
const fileCapabilities = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH | 1<<unix.CAP_FOWNER |
	1<<unix.CAP_FSETID | 1<<unix.CAP_LINUX_IMMUTABLE | 1<<unix.CAP_MKNOD | 1<<unix.CAP_MAC_OVERRIDE

// parseUser parses /proc/PID/status.
func parseUser(status []byte) (*user, error) {
	if len(status) >= maxText {
		return nil, errors.New("the status of the process is too long")
	}
	u := &user{uid: -1, gid: -1}
	complete := false
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		fields := strings.Fields(value)
		var err error
		switch {
		case name == "Uid" && len(fields) > 1:
			u.uid, err = strconv.Atoi(fields[1])
		case name == "Gid" && len(fields) > 1:
			u.gid, err = strconv.Atoi(fields[1])
		case name == "Groups":
			for _, f := range fields {
				id, e := strconv.ParseUint(f, 10, 32)
				u.groups, err = append(u.groups, uint32(id)), errors.Join(err, e)
			}
		case name == "CapEff" && len(fields) == 1:
			u.capabilities, err = strconv.ParseUint(fields[0], 16, 64)
			complete = true
		}
		if err != nil {
			return nil, fmt.Errorf("the status of the process: %w", err)
		}
	}
	if !complete || u.uid < 0 || u.gid < 0 {
		return nil, errors.New("the status of the process has no user")
	}
	return u, nil
}

// do calls f on a thread that accesses files as the user. The kernel therefore grants f exactly the access that the container has. A
// new file belongs to the user from the beginning, so f never changes the owner of a file. Such a change would be unsafe, because the
// container could replace the new file with another file. If u is nil, f has the access of this process.
func (u *user) do(f func() error) error {
	if u == nil {
		return f()
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := u.assume()
		if err == nil {
			err = callRecovering(f)
		}
		done <- err
	}()
	return <-done
}

// callRecovering calls f and converts a panic into an error. An archive comes from a client, and a panic in this goroutine would end the
// agent.
func callRecovering(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	return f()
}

// assume gives the calling thread the file system IDs, groups and file capabilities of the user.
func (u *user) assume() error {
	dumpable, _ := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	var first *uint32
	groups := slices.Clone(u.groups)
	if len(groups) > 0 {
		first = &groups[0]
	}
	// unix.Setgroups would change every thread of this process.
	if _, _, number := unix.RawSyscall(setgroups, uintptr(len(groups)), uintptr(unsafe.Pointer(first)), 0); number != 0 {
		return fmt.Errorf("assume the groups of the container: %w", number)
	}
	unix.SetfsgidRetGid(u.gid)
	unix.SetfsuidRetUid(u.uid)
	// The system calls setfsgid and setfsuid report no error. With an invalid ID they change nothing and return the
	// present ID.
	gid, _ := unix.SetfsgidRetGid(-1)
	uid, _ := unix.SetfsuidRetUid(-1)
	if uid != u.uid || gid != u.gid {
		return fmt.Errorf("assume the user %d:%d of the container: %w", u.uid, u.gid, unix.EPERM)
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&head, &sets[0]); err != nil {
		return fmt.Errorf("read the capabilities of a thread: %w", err)
	}
	for i := range sets {
		allowed := uint32(u.capabilities>>(32*i)) & sets[i].Permitted
		files := uint32(uint64(fileCapabilities) >> (32 * i))
		sets[i].Effective = sets[i].Effective&^files | allowed&files
	}
	if err := unix.Capset(&head, &sets[0]); err != nil {
		return fmt.Errorf("assume the capabilities of the container: %w", err)
	}
	if dumpable == 1 { // the kernel has changed it for the whole process
		return unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
	}
	return nil
}
