package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/machine"
)

// gateway is the control plane's address in the network of the machines. It is also the default gateway of the
// machines.
const gateway = "10.97.0.1"

// createNetwork creates the network of the machines and the filter for Silence. The bridge does not
// flood packets to all ports. Each machine therefore receives only its own packets, which Bytes
// counts.
func (c *Cluster) createNetwork() error {
	// The bridge gets a fixed hardware address. Otherwise the bridge would take the address of one
	// of the cables. The removal of this cable would then interrupt all connections to the control
	// plane for half a minute.
	err := c.runIP(0, "link add lan0 address 0a:58:0a:61:00:01 type bridge ageing_time 100000000", "link set lan0 addrgenmode none",
		"addr add "+gateway+"/24 dev lan0", "link set lan0 up")
	if err != nil {
		return err
	}
	return c.run(`table inet wan {
	set silent { type ipv4_addr; }
	chain in { type filter hook input priority 0; ip saddr @silent drop; }
	chain out { type filter hook output priority 0; ip daddr @silent drop; }
}`, "nft", "-f", "-")
}

// runIP runs commands of ip, one per line, in the network namespace of a process, or on the control
// plane's host if pid is 0.
func (c *Cluster) runIP(pid int, lines ...string) error {
	if pid == 0 {
		pid = c.host.Pid()
	}
	// The command stays in this process's PID namespace, because the PIDs in the lines are from this
	// namespace.
	cmd := exec.Command("nsenter", "-t", strconv.Itoa(pid), "-n", "ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip %q: %w\n%s", lines, err, out)
	}
	return nil
}

// A Link is the cable between a machine and the control plane. The state of the cable survives a
// reboot of the machine. A Link is not safe for concurrent use.
type Link struct {
	Addr string // of the machine

	c      *Cluster
	mac    string
	port   string // the control plane's end of the cable while the machine is on
	cut    bool
	silent bool
}

// Plug connects a machine to the control plane by a cable. The machine must be off. Each boot of
// the machine creates the cable again.
func (c *Cluster) Plug(m *machine.Machine) *Link {
	c.mu.Lock()
	c.hosts++
	l := &Link{c: c, Addr: fmt.Sprintf("10.97.0.%d", 1+c.hosts), mac: fmt.Sprintf("02:00:0a:61:00:%02x", 1+c.hosts)}
	c.mu.Unlock()
	m.OnBoot = l.plug
	return l
}

// Wire connects two running machines by a cable and returns the addresses of the two ends. The control plane's
// network does not forward packets between machines. The first machine gets a new cable when it boots again.
func (c *Cluster) Wire(t testing.TB, a, b *Node) (addrA, addrB string) {
	t.Helper()
	addrA, addrB = "10.98.0.1", "10.98.0.2"
	last := ""
	lay := func(pid int) error {
		if last != "" { // the kernel removes the old cable some time after the machine was turned off
			_ = c.runIP(b.Pid(), "link delete "+last)
		}
		c.mu.Lock()
		c.cable++
		last = fmt.Sprint("wire", c.cable)
		c.mu.Unlock()
		return errors.Join( // the hardware address must not change, because the other machine caches it
			c.runIP(pid, fmt.Sprintf("link add %[1]s address 02:00:0a:62:00:01 type veth peer name %[1]s netns %[2]d", last, b.Pid()),
				"link set "+last+" up", "addr add "+addrA+"/24 dev "+last),
			c.runIP(b.Pid(), "link set "+last+" master wires up"))
	}
	plug := a.OnBoot
	a.OnBoot = func(pid int) error { return errors.Join(plug(pid), lay(pid)) }
	// On the second machine, the cable is a port of a bridge. The bridge keeps the address and the routes while there
	// is no cable.
	err := errors.Join(c.runIP(b.Pid(), "link add wires type bridge", "addr add "+addrB+"/24 dev wires", "link set wires up"), lay(a.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	return addrA, addrB
}

func (l *Link) plug(pid int) error {
	l.c.mu.Lock()
	l.c.cable++
	l.port = fmt.Sprint("cable", l.c.cable)
	l.c.mu.Unlock()
	err := l.c.runIP(0, fmt.Sprintf("link add %s type veth peer name eth0 address %s netns %d", l.port, l.mac, pid),
		"link set "+l.port+" master lan0 addrgenmode none", "link set "+l.port+" type bridge_slave isolated on flood off mcast_flood off",
		fmt.Sprintf("neigh replace %s lladdr %s dev lan0 nud permanent", l.Addr, l.mac))
	if err != nil {
		return err
	}
	err = l.c.runIP(pid, "link set eth0 addrgenmode none up", "addr add "+l.Addr+"/24 dev eth0", "route add default via "+gateway)
	if err != nil || l.cut {
		return err
	}
	return l.c.runIP(0, "link set "+l.port+" up")
}

// Cut disconnects the cable, so the machine's interface has no carrier.
func (l *Link) Cut(t testing.TB) {
	t.Helper()
	l.cut = true
	l.set(t, "down")
}

// Silence drops every packet in both directions. Neither side is notified, so connections stay half open.
func (l *Link) Silence(t testing.TB) {
	t.Helper()
	l.silent = true
	l.filter(t, "add")
}

// Restore ends Cut and Silence.
func (l *Link) Restore(t testing.TB) {
	t.Helper()
	if l.silent {
		l.filter(t, "delete")
	}
	if l.cut {
		l.set(t, "up")
	}
	l.cut, l.silent = false, false
}

// Flap cuts and restores the link several times. The link is up when Flap returns.
func (l *Link) Flap(t testing.TB, times int, down, up time.Duration) {
	t.Helper()
	for range times {
		l.Cut(t)
		Pass(down)
		l.Restore(t)
		Pass(up)
	}
}

// Pass waits for a period that is the subject of a test, such as an outage or a measurement.
func Pass(d time.Duration) { <-time.After(d) }

func (l *Link) set(t testing.TB, state string) {
	t.Helper()
	if err := l.c.runIP(0, "link set "+l.port+" "+state); err != nil {
		t.Fatal(err)
	}
}

func (l *Link) filter(t testing.TB, verb string) {
	t.Helper()
	if err := l.c.run("", "nft", verb, "element", "inet", "wan", "silent", "{", l.Addr, "}"); err != nil {
		t.Fatal(err)
	}
}

// Bytes returns the bytes of IP packets that the machine has received and sent through its cable since the machine was turned on.
func (l *Link) Bytes(t testing.TB) (received, sent int64) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", l.c.host.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		name, figures, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name != l.port {
			continue
		}
		f := strings.Fields(figures)
		at := func(i int) int64 { n, _ := strconv.ParseInt(f[i], 10, 64); return n }
		const ethernet = 14 // bytes of the Ethernet header of each packet
		return at(8) - ethernet*at(9), at(0) - ethernet*at(1)
	}
	t.Fatalf("interface %s is gone", l.port)
	return 0, 0
}
