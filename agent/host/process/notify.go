package process

import (
	"fmt"
	"net"
	"os"
	"time"
)

// A ServiceManager is the address of systemd's notification socket, or empty if there is none.
// https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html
type ServiceManager string

// TakeServiceManager returns the address from the environment and removes the variable. Otherwise OCI runtimes would
// inherit the address and wait until each container reports READY.
func TakeServiceManager() ServiceManager {
	m := ServiceManager(os.Getenv("NOTIFY_SOCKET"))
	os.Unsetenv("NOTIFY_SOCKET")
	return m
}

// Extend requests more time to start or stop.
func (m ServiceManager) Extend(by time.Duration) error {
	return m.Notify(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", (by + 10*time.Second).Microseconds()))
}

// Notify sends a state such as READY=1.
func (m ServiceManager) Notify(state string) error {
	if m == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: string(m), Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("report to the service manager %s: %w", state, err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(state)); err != nil {
		return fmt.Errorf("report to the service manager %s: %w", state, err)
	}
	return nil
}
