package machine

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// initEnv is an environment variable. If it is set, the test binary is the init of a machine. The
// value is the host name.
const initEnv = "ISLET_TEST_MACHINE"

// Main must be called first by TestMain. In a process that becomes a machine's init, Main never returns.
func Main() {
	if len(os.Args) > 3 && os.Args[1] == oddArgument {
		fmt.Fprintln(os.Stderr, "machine:", execOddly(os.Args[2:]))
		os.Exit(1)
	}
	// Daemons must not inherit the descriptors that this process inherited, such as a lock of the
	// shell that started the tests. Go sets close-on-exec only for the descriptors that it opened.
	if err := unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC); err != nil && err != unix.ENOSYS {
		fmt.Fprintln(os.Stderr, "machine:", err)
		os.Exit(1)
	}
	name := os.Getenv(initEnv)
	if name == "" {
		return
	}
	if err := boot(name); err != nil {
		fmt.Fprintln(os.Stderr, "machine:", err)
		os.Exit(1)
	}
	fmt.Println("ready")
	reap()
}

func boot(name string) error {
	os.Unsetenv(initEnv)
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED, ""); err != nil {
		return fmt.Errorf("make mounts shared, as systemd does: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := syscall.Mount("run", "/run", "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	if err := syscall.Sethostname([]byte(name)); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	return setLoopbackUp()
}

// setLoopbackUp brings up the loopback interface. It uses the ioctl, which is simpler than netlink.
func setLoopbackUp() error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	var req struct {
		name  [syscall.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}
	copy(req.name[:], "lo")
	req.flags = syscall.IFF_UP | syscall.IFF_RUNNING
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&req))); errno != 0 {
		return fmt.Errorf("bring loopback up: %w", errno)
	}
	return nil
}

// reap waits for ended child processes. It subscribes to SIGCHLD before it calls Wait4, so that it
// does not miss a signal. It receives the signals from a channel instead of calling pause(2),
// because pause(2) returns only in the thread that receives the signal.
func reap() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	for {
		_, err := syscall.Wait4(-1, nil, 0, nil)
		if errors.Is(err, syscall.ECHILD) {
			<-ended
		}
	}
}
