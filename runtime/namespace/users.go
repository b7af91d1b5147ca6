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

// Users is a user namespace: what is ID 0 and following inside are these IDs outside.
type Users struct{ UIDs, GIDs IDs }

// IDs are Count IDs from First on, as the host counts them.
type IDs struct{ First, Count uint32 }

func (i IDs) mapping() []syscall.SysProcIDMap {
	return []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(i.First), Size: int(i.Count)}}
}

// User is the name of a sandbox's own user namespace in its directory.
const User = "user"

// pinOwned makes a user namespace and the others in it, so that who may do all inside
// may do with them as it likes, and with no other. A kernel lets only a process of one
// thread be in a new user namespace: so one is made that never runs, and that ends when
// what it holds is pinned.
// https://man7.org/linux/man-pages/man7/user_namespaces.7.html
func pinOwned(dir string, c Config) (err error) {
	held, err := hold(c)
	if err != nil {
		return fmt.Errorf("make a user namespace: %w", err)
	}
	defer func() { err = errors.Join(err, held.end()) }()
	for _, name := range c.Names() {
		if err := bind("/proc/"+strconv.Itoa(held.Pid)+"/ns/"+name, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	for _, f := range flags {
		if f.name == User || !c.has(f.name) {
			continue // this process has many threads
		}
		if err := join(filepath.Join(dir, f.name), f.flag); err != nil {
			return err
		}
	}
	return c.configure(dir)
}

// held is a process that was stopped before its first instruction.
type held struct{ *os.Process }

// hold starts one in the namespaces of c, on the thread that calls it. The others are made
// once the users are mapped: the kernel gives the sysfs of a network namespace's loopback
// to who is root when it is made.
func hold(c Config) (held, error) {
	p, err := os.StartProcess("/proc/self/exe", []string{"islet [namespaces]"}, &os.ProcAttr{
		Env: []string{},
		Sys: &syscall.SysProcAttr{
			Cloneflags: unix.CLONE_NEWUSER, Unshareflags: c.flags() &^ unix.CLONE_NEWUSER, UidMappings: c.Users.UIDs.mapping(), GidMappings: c.Users.GIDs.mapping(),
			GidMappingsEnableSetgroups: true, Pdeathsig: syscall.SIGKILL,
			Ptrace: true, // it stops when it is executed
		},
	})
	return held{p}, err
}

func (h held) end() error {
	if err := h.Kill(); err != nil {
		return err
	}
	_, err := h.Wait()
	return err
}

// NewUsers opens a user namespace that is pinned nowhere.
func NewUsers(u Users) (*os.File, error) {
	type opened struct {
		f   *os.File
		err error
	}
	done := make(chan opened, 1)
	go func() {
		runtime.LockOSThread() // see Pin
		held, err := hold(Config{Users: &u})
		if err != nil {
			done <- opened{nil, err}
			return
		}
		f, err := os.Open("/proc/" + strconv.Itoa(held.Pid) + "/ns/" + User)
		done <- opened{f, errors.Join(err, held.end())}
	}()
	o := <-done
	if o.err != nil {
		return nil, fmt.Errorf("make a user namespace: %w", o.err)
	}
	return o.f, nil
}

// join enters a namespace, with the thread that calls it.
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

// setSysctl sets one in the namespaces of the thread that calls it. Those of an IPC
// namespace that belongs to a user namespace are, since Linux 6.10, for its own root alone:
// not even the host's may write them.
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

// asThread changes the effective user of one thread. (The syscall package would change
// that of all.)
func asThread(uid uint32) error {
	keep := ^uintptr(0)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(uid), keep); errno != 0 {
		return fmt.Errorf("become user %d: %w", uid, errno)
	}
	return nil
}
