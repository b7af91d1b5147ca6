package namespace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Users describes a user namespace. It contains the IDs of the host for the IDs from 0 on inside.
type Users struct{ UIDs, GIDs IDs }

// IDs are a range of Count IDs of the host that starts at First.
type IDs struct{ First, Count uint32 }

func (i IDs) mapping() []syscall.SysProcIDMap {
	return []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(i.First), Size: int(i.Count)}}
}

// User is the name of the file in a sandbox's directory at which its user namespace is pinned.
const User = "user"

// pinOwned creates and pins a user namespace and the other namespaces, which it owns. Capabilities
// inside the user namespace apply only to these. Only a single-threaded process can enter a new
// user namespace. So pinOwned starts a process that is stopped before it runs, and kills it once
// its namespaces are pinned. https://man7.org/linux/man-pages/man7/user_namespaces.7.html
func pinOwned(dir string, c Config) (err error) {
	held, err := startStopped(c)
	if err != nil {
		return fmt.Errorf("create a user namespace: %w", err)
	}
	defer func() { err = errors.Join(err, held.end()) }()
	for _, name := range c.Names() {
		if err := bind("/proc/"+strconv.Itoa(held.Pid)+"/ns/"+name, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	for _, f := range flags {
		if f.name == User || !c.has(f.name) {
			continue // not possible, because this process has many threads
		}
		if err := join(filepath.Join(dir, f.name), f.flag); err != nil {
			return err
		}
	}
	return c.configure(dir)
}

// A stoppedProcess is a process that is stopped before its first instruction.
type stoppedProcess struct{ *os.Process }

// startStopped starts a process in the namespaces of c. The calling thread must be locked, because it is
// the tracer of the process, and the process is killed when its tracer ends. The other namespaces
// are created after the IDs are mapped, because the kernel then assigns the loopback's files in
// sysfs to the user that is root at that moment.
func startStopped(c Config) (stoppedProcess, error) {
	p, err := os.StartProcess("/proc/self/exe", []string{"islet [namespaces]"}, &os.ProcAttr{
		Env: []string{},
		Sys: &syscall.SysProcAttr{
			Cloneflags: unix.CLONE_NEWUSER, Unshareflags: c.flags() &^ unix.CLONE_NEWUSER,
			UidMappings: c.Users.UIDs.mapping(), GidMappings: c.Users.GIDs.mapping(),
			GidMappingsEnableSetgroups: true, Pdeathsig: syscall.SIGKILL,
			Ptrace: true, // it stops at execve
		},
	})
	return stoppedProcess{p}, err
}

func (h stoppedProcess) end() error {
	if err := h.Kill(); err != nil {
		return err
	}
	_, err := h.Wait()
	return err
}

// NewUsers creates a user namespace and opens it. It is not pinned.
func NewUsers(u Users) (*os.File, error) {
	type opened struct {
		f   *os.File
		err error
	}
	done := make(chan opened, 1)
	go func() {
		runtime.LockOSThread() // see Pin
		held, err := startStopped(Config{Users: &u})
		if err != nil {
			done <- opened{nil, err}
			return
		}
		f, err := os.Open("/proc/" + strconv.Itoa(held.Pid) + "/ns/" + User)
		done <- opened{f, errors.Join(err, held.end())}
	}()
	o := <-done
	if o.err != nil {
		return nil, fmt.Errorf("create a user namespace: %w", o.err)
	}
	return o.f, nil
}

// join moves the calling thread into the namespace that is pinned at path.
func join(path string, flag int) error {
	ns, err := os.Open(path)
	if err != nil {
		return err
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), flag); err != nil {
		return fmt.Errorf("enter %s: %w", path, err)
	}
	return nil
}

// setSysctl sets a sysctl in the namespaces of the calling thread. Since Linux 6.10, only the root
// of a user namespace can write the sysctls of its IPC namespaces; the host's root cannot.
func (c Config) setSysctl(name, value string) error {
	err := os.WriteFile(sysctlPath(name), []byte(value), 0)
	if c.Users == nil || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	if err := asThread(c.Users.UIDs.First); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(sysctlPath(name), []byte(value), 0), asThread(0))
}

// asThread changes the effective user of the calling thread only. (The syscall package would change
// that of all threads.)
func asThread(uid uint32) error {
	keep := ^uintptr(0)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(uid), keep); errno != 0 {
		return fmt.Errorf("become user %d: %w", uid, errno)
	}
	return nil
}
