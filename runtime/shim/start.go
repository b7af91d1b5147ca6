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
// what it logs is appended to <socket>.log.
func Start(path, socket string) error {
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
	if err := start(path, socket, l); err != nil {
		os.Remove(socket)
		return fmt.Errorf("start shim %s: %w", path, err)
	}
	return nil
}

func start(path, socket string, l *net.UnixListener) error {
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
	cmd := exec.Command(path, "serve", filepath.Base(socket))
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{f}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	// Not allowed without CAP_SYS_RESOURCE; then the shim is as mortal as others.
	os.WriteFile("/proc/"+strconv.Itoa(cmd.Process.Pid)+"/oom_score_adj", []byte(strconv.Itoa(oomScore)), 0)
	go cmd.Wait() // reaps it, should it end before this process
	return nil
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
