package shim

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// oomScore protects a shim from the OOM killer like the kubelet's own daemons:
// its end would end the containers of several pods.
const oomScore = -999

// Start starts the program at path as a shim that listens on the given unix
// socket. The socket is ready when Start returns. The shim outlives this process;
// what it logs is appended to <socket>.log. It does not see what is mounted below the
// directories in hidden, which are mount points; without any it is among the host's
// mounts.
func Start(path, socket string, hidden []string) error {
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("start shim: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return fmt.Errorf("start shim: %w", err)
	}
	l.SetUnlinkOnClose(false)
	defer l.Close()
	if err := os.Chmod(socket, 0o600); err != nil {
		return fmt.Errorf("start shim: %w", err)
	}
	if err := start(path, socket, l, hidden); err != nil {
		os.Remove(socket)
		return fmt.Errorf("start shim %s: %w", path, err)
	}
	return nil
}

func start(path, socket string, l *net.UnixListener, hidden []string) error {
	f, err := l.File()
	if err != nil {
		return err
	}
	defer f.Close()
	log, err := os.OpenFile(socket+".log", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(path, append([]string{"serve", filepath.Base(socket)}, hidden...)...)
	cmd.Dir = "/"
	cmd.Env = Environ()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{f}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if len(hidden) > 0 {
		for _, name := range []string{"/", "/proc/self/ns/mnt"} {
			f, err := os.Open(name)
			if err != nil {
				return err
			}
			defer f.Close()
			cmd.ExtraFiles = append(cmd.ExtraFiles, f)
		}
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	// Not allowed without CAP_SYS_RESOURCE; then the shim is as mortal as others.
	os.WriteFile("/proc/"+strconv.Itoa(cmd.Process.Pid)+"/oom_score_adj", []byte(strconv.Itoa(oomScore)), 0)
	go cmd.Wait() // reaps it, should it end before this process
	return nil
}

// Environ is what shims and OCI runtimes inherit of this process's environment: no
// more than they need to find programs and systemd. What is meant for the agent is
// none of theirs: an OCI runtime passes on sockets that LISTEN_FDS counts.
func Environ() []string {
	out := []string{} // not nil, which would be everything
	for _, name := range []string{"PATH", "DBUS_SYSTEM_BUS_ADDRESS", "TMPDIR"} {
		if v, ok := os.LookupEnv(name); ok {
			out = append(out, name+"="+v)
		}
	}
	return out
}

// peerPID is the process at the other end of a unix socket: the one that called
// listen last before the connection was made. 0: not known, since that was still
// this one, which has made the socket for the shim.
func peerPID(c *net.UnixConn) int {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	if pid == os.Getpid() {
		return 0
	}
	return pid
}
