package agent

import (
	"fmt"
	"net"
	"os"
)

// A serviceManager is told how the agent fares: the address of systemd's
// notification socket, empty where there is none.
// https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html
type serviceManager string

// takeServiceManager takes the address out of the environment. Were it left
// there, OCI runtimes would inherit it, and wait for each container to report
// that it is ready.
func takeServiceManager() serviceManager {
	m := serviceManager(os.Getenv("NOTIFY_SOCKET"))
	os.Unsetenv("NOTIFY_SOCKET")
	return m
}

// tell sends a state such as READY=1.
func (m serviceManager) tell(state string) error {
	if m == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: string(m), Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("tell the service manager %s: %w", state, err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(state)); err != nil {
		return fmt.Errorf("tell the service manager %s: %w", state, err)
	}
	return nil
}
