package vm

import (
	"encoding/base64"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Write writes a file in the machine.
func (v *VM) Write(path, content string) {
	v.t.Helper()
	v.Run(fmt.Sprintf("mkdir -p %s && echo %s | base64 -d >%s", filepath.Dir(path), base64.StdEncoding.EncodeToString([]byte(content)),
		path))
}

// A Cable connects a machine to a network. The zero value of Cable means that there is no cable.
type Cable struct {
	Address, Router string // the machine's address, and the machine's default gateway

	pid int    // the PID of a process in the network namespace of the cable's other end
	nic string // the argument for the emulator
}

// NATCable returns a cable through which a machine can open connections in the network namespace of
// a process. The emulator translates the addresses. Connections to the machine are not possible.
func NATCable(pid int) Cable {
	return Cable{Address: "10.0.2.15", Router: "10.0.2.2", pid: pid, nic: "user,model=virtio-net-pci"}
}

// A LAN is a network in which machines can connect to each other.
type LAN struct {
	pid    int
	cables int
}

// lan is the address range of a LAN. The first address is the router's.
const lan = "192.168.77."

// NewLAN creates a LAN in the network namespace of a process. The namespace is the LAN's router.
// When the namespace ends, the LAN is removed too.
func NewLAN(t testing.TB, pid int) *LAN {
	t.Helper()
	l := &LAN{pid: pid}
	l.ip(t, "link add lan type bridge", "addr add "+lan+"1/24 dev lan", "link set lan up")
	return l
}

// Cable returns a cable for another machine. The cable stays connected while the machine is off.
func (l *LAN) Cable(t testing.TB) Cable {
	t.Helper()
	l.cables++
	place := 1 + l.cables
	port := fmt.Sprint("port", place)
	l.ip(t, "tuntap add "+port+" mode tap", "link set "+port+" master lan up")
	return Cable{Address: fmt.Sprint(lan, place), Router: lan + "1", pid: l.pid,
		nic: fmt.Sprintf("tap,model=virtio-net-pci,ifname=%s,script=no,downscript=no,mac=52:54:00:00:00:%02x", port, place)}
}

func (l *LAN) ip(t testing.TB, lines ...string) {
	t.Helper()
	args := append(Cable{pid: l.pid}.enterCommand(), "ip", "-batch", "-")
	c := exec.Command(args[0], args[1:]...)
	c.Stdin = strings.NewReader(strings.Join(lines, "\n"))
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("ip %q: %v\n%s", lines, err, out)
	}
}

// enterCommand returns the beginning of a command line. The command line runs a program in the network namespace of the cable's other end,
// but in this process's PID namespace.
func (c Cable) enterCommand() []string {
	if c.pid == 0 {
		return nil
	}
	return []string{"nsenter", "-t", fmt.Sprint(c.pid), "-n", "--"}
}

// SetAddress configures the machine's address and default route. Call it after each boot.
func (v *VM) SetAddress() {
	v.t.Helper()
	v.Run("modprobe virtio_net; udevadm settle; dev=$(basename $(ls -d /sys/class/net/*/device | head -1 | xargs dirname)) && " +
		"ip addr add " + v.Cable.Address + "/24 dev $dev && ip link set $dev up && ip route add default via " + v.Cable.Router)
}
