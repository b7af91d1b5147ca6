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

// oomScore is the OOM score adjustment of a shim. If the kernel killed a shim, the containers of
// several pods would end. The kubelet uses the same value for itself and for the container runtime.
const oomScore = -999

// Start starts the program at path as a shim that listens on a unix socket. The socket accepts connections when Start returns. The shim
// continues to run after the end of this process. It appends its log to <socket>.log. The shim runs in its own mount namespace, which does
// not contain the mounts at and below the hidden mount points. Without hidden mount points, the shim runs in the host's mount namespace.
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
	if err := startProcess(path, socket, l, hidden); err != nil {
		os.Remove(socket)
		return fmt.Errorf("start shim %s: %w", path, err)
	}
	return nil
}

func startProcess(path, socket string, l *net.UnixListener, hidden []string) error {
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
	// Without CAP_SYS_RESOURCE the score cannot be set, and the OOM killer may kill the shim.
	os.WriteFile("/proc/"+strconv.Itoa(cmd.Process.Pid)+"/oom_score_adj", []byte(strconv.Itoa(oomScore)), 0)
	go cmd.Wait() // reaps the shim if it ends before this process
	return nil
}

// Environ returns the environment variables for shims and OCI runtimes. It contains only the
// variables that are needed to find programs and systemd. Other variables of the agent must not be
// inherited: with LISTEN_FDS, for example, an OCI runtime would pass file descriptors to the
// container.
func Environ() []string {
	out := []string{} // nil would mean the whole environment of this process
	for _, name := range []string{"PATH", "DBUS_SYSTEM_BUS_ADDRESS", "TMPDIR"} {
		if v, ok := os.LookupEnv(name); ok {
			out = append(out, name+"="+v)
		}
	}
	return out
}

// peerPID returns the PID of the process at the other end of a unix socket. The kernel reports the
// process that last called listen(2) on the socket. Until the shim has called listen, the kernel
// reports the current process, which created the socket. In this case peerPID returns 0.
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
