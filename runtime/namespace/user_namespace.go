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

// Users contains the ID mappings of a user namespace. ID 0 of the namespace is mapped to the first
// ID of each range.
type Users struct{ UIDs, GIDs IDs }

// IDs is a range of Count IDs of the host, starting at First.
type IDs struct{ First, Count uint32 }

func (i IDs) toSysProcIDMap() []syscall.SysProcIDMap {
	return []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(i.First), Size: int(i.Count)}}
}

// User is the name of the pin of the user namespace in the directory of a sandbox.
const User = "user"

// pinOwned creates and pins a user namespace and the other namespaces, which the user namespace
// owns. A process with several threads cannot enter a user namespace, so pinOwned starts a process
// in the new namespaces. The process is stopped at execve and killed when the namespaces are
// pinned. https://man7.org/linux/man-pages/man7/user_namespaces.7.html
func pinOwned(dir string, c Config) (err error) {
	process, err := startStopped(c)
	if err != nil {
		return fmt.Errorf("create a user namespace: %w", err)
	}
	defer func() { err = errors.Join(err, process.killAndWait()) }()
	for _, name := range c.Names() {
		if err := bindNamespace("/proc/"+strconv.Itoa(process.Pid)+"/ns/"+name, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	for _, f := range cloneFlags {
		if f.name == User || !c.hasNamespace(f.name) {
			continue // a multithreaded process cannot enter a user namespace
		}
		if err := joinNamespace(filepath.Join(dir, f.name), f.flag); err != nil {
			return err
		}
	}
	return c.applySettings(dir)
}

// A stoppedProcess is a process that is stopped at execve by ptrace(2).
type stoppedProcess struct{ *os.Process }

// startStopped starts a process in the namespaces of c. The calling thread must be locked, because
// it is the tracer of the process. The other namespaces are created after the IDs are mapped,
// because the creation of a network namespace sets the owner of the sysfs files of its loopback
// device to the current root user.
func startStopped(c Config) (stoppedProcess, error) {
	p, err := os.StartProcess("/proc/self/exe", []string{"islet [namespaces]"}, &os.ProcAttr{
		Env: []string{},
		Sys: &syscall.SysProcAttr{
			Cloneflags: unix.CLONE_NEWUSER, Unshareflags: c.cloneFlagsOf() &^ unix.CLONE_NEWUSER,
			UidMappings: c.Users.UIDs.toSysProcIDMap(), GidMappings: c.Users.GIDs.toSysProcIDMap(),
			GidMappingsEnableSetgroups: true, Pdeathsig: syscall.SIGKILL,
			Ptrace: true, // stops the process at execve
		},
	})
	return stoppedProcess{p}, err
}

func (h stoppedProcess) killAndWait() error {
	if err := h.Kill(); err != nil {
		return err
	}
	_, err := h.Wait()
	return err
}

// NewUsers creates a user namespace and returns its open file. The namespace is not pinned.
func NewUsers(u Users) (*os.File, error) {
	type opened struct {
		f   *os.File
		err error
	}
	done := make(chan opened, 1)
	go func() {
		runtime.LockOSThread() // see Pin
		process, err := startStopped(Config{Users: &u})
		if err != nil {
			done <- opened{nil, err}
			return
		}
		f, err := os.Open("/proc/" + strconv.Itoa(process.Pid) + "/ns/" + User)
		done <- opened{f, errors.Join(err, process.killAndWait())}
	}()
	o := <-done
	if o.err != nil {
		return nil, fmt.Errorf("create a user namespace: %w", o.err)
	}
	return o.f, nil
}

// joinNamespace moves the calling thread to the namespace that is pinned at path.
func joinNamespace(path string, flag int) error {
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

// setSysctl sets a sysctl in the namespaces of the calling thread. Since Linux 6.10, the sysctls of
// an IPC namespace can be written only by the root user of its user namespace, not by the host's
// root user.
func (c Config) setSysctl(name, value string) error {
	err := os.WriteFile(sysctlPath(name), []byte(value), 0)
	if c.Users == nil || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	if err := setThreadUID(c.Users.UIDs.First); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(sysctlPath(name), []byte(value), 0), setThreadUID(0))
}

// setThreadUID changes the effective UID of only the calling thread. Functions of package syscall
// change all threads.
func setThreadUID(uid uint32) error {
	keep := ^uintptr(0)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(uid), keep); errno != 0 {
		return fmt.Errorf("become user %d: %w", uid, errno)
	}
	return nil
}
