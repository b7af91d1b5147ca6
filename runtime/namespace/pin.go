package namespace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/component-helpers/node/util/sysctl"
)

// Names of the files in a sandbox's directory.
const (
	Net = "net"
	IPC = "ipc"
	UTS = "uts"
)

type cloneFlag struct {
	name string
	flag int
}

var cloneFlags = []cloneFlag{{User, unix.CLONE_NEWUSER}, {Net, unix.CLONE_NEWNET}, {IPC, unix.CLONE_NEWIPC}, {UTS, unix.CLONE_NEWUTS}}

// A Config describes the namespaces of a sandbox and their settings. Namespaces that are not set
// are the host's.
type Config struct {
	Net, IPC, UTS bool
	Users         *Users            // user namespace, which owns the others; nil means the host's
	Hostname      string            // requires UTS
	Sysctls       map[string]string // only sysctls of the namespaces of this Config
}

func (c Config) hasNamespace(name string) bool {
	return name == Net && c.Net || name == IPC && c.IPC || name == UTS && c.UTS || name == User && c.Users != nil
}

// Names returns the names of the namespaces of the sandbox.
func (c Config) Names() (out []string) {
	for _, f := range cloneFlags {
		if c.hasNamespace(f.name) {
			out = append(out, f.name)
		}
	}
	return out
}

// cloneFlagsOf returns the flags of clone(2) and unshare(2) for the namespaces.
func (c Config) cloneFlagsOf() (all uintptr) {
	for _, f := range cloneFlags {
		if c.hasNamespace(f.name) {
			all |= uintptr(f.flag)
		}
	}
	return all
}

// Pin creates new namespaces and pins them in dir. It first unpins the namespaces of an earlier
// call. If Pin fails, it removes dir.
func Pin(dir string, c Config) error {
	if err := c.check(); err != nil {
		return err
	}
	if err := makeEmpty(dir); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		// The thread is never unlocked, so the Go runtime ends it together with the goroutine, and
		// no other goroutine runs in the new namespaces.
		runtime.LockOSThread()
		done <- pinNamespaces(dir, c)
	}()
	if err := <-done; err != nil {
		return errors.Join(fmt.Errorf("pin namespaces: %w", err), Unpin(dir))
	}
	return nil
}

// makeEmpty creates a directory without pins. Usually the directory does not exist, and then one system call is sufficient.
func makeEmpty(dir string) error {
	err := os.Mkdir(dir, 0o711)
	if errors.Is(err, os.ErrExist) {
		if err := Unpin(dir); err != nil {
			return err
		}
	}
	if err != nil {
		err = os.MkdirAll(dir, 0o711)
	}
	if err != nil {
		return fmt.Errorf("pin namespaces: %w", err)
	}
	return nil
}

func pinNamespaces(dir string, c Config) error {
	if c.cloneFlagsOf() == 0 {
		return nil
	}
	if c.Users != nil {
		return pinOwned(dir, c)
	}
	if err := unix.Unshare(int(c.cloneFlagsOf())); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := c.applySettings(dir); err != nil {
		return err
	}
	for _, name := range c.Names() {
		if err := bindNamespace("/proc/thread-self/ns/"+name, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// applySettings applies the settings to the namespaces of the calling thread, and pins the sysfs in
// dir.
func (c Config) applySettings(dir string) error {
	if c.Net {
		if err := loopbackUp(); err != nil {
			return fmt.Errorf("bring up loopback: %w", err)
		}
		if err := pinSysfs(dir); err != nil {
			return err
		}
	}
	if c.UTS && c.Hostname != "" {
		if err := unix.Sethostname([]byte(c.Hostname)); err != nil {
			return fmt.Errorf("set hostname: %w", err)
		}
	}
	for k, v := range c.Sysctls {
		if err := c.setSysctl(k, v); err != nil {
			return fmt.Errorf("set sysctl %s: %w", k, err)
		}
	}
	return nil
}

// bindNamespace creates a bind mount of a namespace at path.
func bindNamespace(namespace, path string) error {
	if err := unix.Mknod(path, unix.S_IFREG|0o600, 0); err != nil { // one system call instead of the eight of os.WriteFile
		return &os.PathError{Op: "create", Path: path, Err: err}
	}
	if err := unix.Mount(namespace, path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", path, err)
	}
	return nil
}

// check returns an error for a sysctl that would be set for the host: a sysctl of a namespace that
// the sandbox shares with the host, or a sysctl that is not namespaced.
func (c Config) check() error {
	for k := range c.Sysctls {
		ns, _, _ := sysctl.GetNamespace(k)
		own := ns == sysctl.NetNamespace && c.Net || ns == sysctl.IPCNamespace && c.IPC || ns == sysctl.UTSNamespace && c.UTS
		if parts := strings.Split(sysctlPath(k), "/"); !own || slices.Contains(parts, "..") || slices.Contains(parts, ".") {
			return fmt.Errorf("sysctl %q is not in a namespace of the sandbox: it would be set for the host", k)
		}
	}
	return nil
}

// sysctlPath returns the file of a sysctl. The separator of the name is a dot or a slash. The other
// character means a dot in a component, such as eth0.1.
func sysctlPath(name string) string {
	swapped := strings.NewReplacer(".", "/", "/", ".").Replace(sysctl.NormalizeName(name))
	return "/proc/sys/" + swapped
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
}

// Unpin removes the pins in a directory, and then the directory. Missing pins are not an error.
func Unpin(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("unpin: %w", err)
	}
	for _, e := range entries {
		if !isPin(e.Name()) {
			continue // the directory is then not removed, which is an error
		}
		if err := removePin(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	if err := unix.Rmdir(dir); err != nil && err != unix.ENOENT {
		return fmt.Errorf("unpin: %w", &os.PathError{Op: "remove", Path: dir, Err: err})
	}
	return nil
}

// isPin reports whether a name in the directory of a sandbox is the name of a pin.
func isPin(name string) bool {
	named := func(f cloneFlag) bool { return f.name == name }
	return slices.ContainsFunc(cloneFlags, named) || name == sysfsDir || strings.HasPrefix(name, pidPrefix)
}

// IsPinned reports whether a namespace is pinned at path. After a reboot, path is an empty file or
// does not exist.
func IsPinned(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && int64(st.Type) == unix.NSFS_MAGIC
}

// Do runs f on a new thread in the network namespace that is pinned at path.
func Do(path string, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // see Pin
		ns, err := os.Open(path)
		if err != nil {
			done <- err
			return
		}
		defer ns.Close()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter network namespace %s: %w", path, err)
			return
		}
		done <- f()
	}()
	return <-done
}
