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

// gateway is the control plane's address in the network of the machines, and their default gateway.
const gateway = "10.97.0.1"

// bridge creates the network of the machines, and the filter for Silence. No packet is broadcast to all machines, so each machine
// receives (see Bytes) only its own packets.
func (c *Cluster) bridge() error {
	// The bridge gets a fixed hardware address. Otherwise it would use the address of a cable, and the removal of that cable would
	// interrupt every connection to the control plane for half a minute.
	err := c.ip(0, "link add lan0 address 0a:58:0a:61:00:01 type bridge ageing_time 100000000", "link set lan0 addrgenmode none",
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

// ip runs commands of ip, one per line, on the control plane's host, or in the network namespace of another process.
func (c *Cluster) ip(pid int, lines ...string) error {
	if pid == 0 {
		pid = c.host.Pid()
	}
	// nsenter does not enter the host's PID namespace, because the PIDs in the commands are those of this process's namespace.
	cmd := exec.Command("nsenter", "-t", strconv.Itoa(pid), "-n", "ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip %q: %w\n%s", lines, err, out)
	}
	return nil
}

// A Link is the cable between a machine and the control plane. It keeps its state when the machine reboots. It is not safe for concurrent
// use.
type Link struct {
	Addr string // address of the machine

	c      *Cluster
	mac    string
	port   string // interface on the control plane's side while the machine is on
	cut    bool
	silent bool
}

// Plug connects a machine to the control plane by a cable. The machine must be off. The cable exists whenever the machine is on.
func (c *Cluster) Plug(m *machine.Machine) *Link {
	c.mu.Lock()
	c.hosts++
	l := &Link{c: c, Addr: fmt.Sprintf("10.97.0.%d", 1+c.hosts), mac: fmt.Sprintf("02:00:0a:61:00:%02x", 1+c.hosts)}
	c.mu.Unlock()
	m.OnBoot = l.plug
	return l
}

// Wire connects two running machines by a cable and returns their addresses at its ends. Without it, the machines cannot communicate,
// because the control plane's network does not forward packets between them. When the first machine boots again, it gets a new cable.
func (c *Cluster) Wire(t testing.TB, a, b *Node) (addrA, addrB string) {
	t.Helper()
	addrA, addrB = "10.98.0.1", "10.98.0.2"
	last := ""
	lay := func(pid int) error {
		if last != "" { // the kernel removes it some time after the machine was turned off
			_ = c.ip(b.Pid(), "link delete "+last)
		}
		c.mu.Lock()
		c.cable++
		last = fmt.Sprint("wire", c.cable)
		c.mu.Unlock()
		return errors.Join( // always the same hardware address, because the other machine has a neighbour entry for it
			c.ip(pid, fmt.Sprintf("link add %[1]s address 02:00:0a:62:00:01 type veth peer name %[1]s netns %[2]d", last, b.Pid()),
				"link set "+last+" up", "addr add "+addrA+"/24 dev "+last),
			c.ip(b.Pid(), "link set "+last+" master wires up"))
	}
	plug := a.OnBoot
	a.OnBoot = func(pid int) error { return errors.Join(plug(pid), lay(pid)) }
	// The second machine's end is a port of a bridge, which keeps its address and routes without a cable.
	err := errors.Join(c.ip(b.Pid(), "link add wires type bridge", "addr add "+addrB+"/24 dev wires", "link set wires up"), lay(a.Pid()))
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
	err := l.c.ip(0, fmt.Sprintf("link add %s type veth peer name eth0 address %s netns %d", l.port, l.mac, pid),
		"link set "+l.port+" master lan0 addrgenmode none", "link set "+l.port+" type bridge_slave isolated on flood off mcast_flood off",
		fmt.Sprintf("neigh replace %s lladdr %s dev lan0 nud permanent", l.Addr, l.mac))
	if err != nil {
		return err
	}
	err = l.c.ip(pid, "link set eth0 addrgenmode none up", "addr add "+l.Addr+"/24 dev eth0", "route add default via "+gateway)
	if err != nil || l.cut {
		return err
	}
	return l.c.ip(0, "link set "+l.port+" up")
}

// Cut disconnects the cable. The machine's interface then has no carrier.
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

// Flap cuts and restores the link several times. At the end the link is up.
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
	if err := l.c.ip(0, "link set "+l.port+" "+state); err != nil {
		t.Fatal(err)
	}
}

func (l *Link) filter(t testing.TB, verb string) {
	t.Helper()
	if err := l.c.run("", "nft", verb, "element", "inet", "wan", "silent", "{", l.Addr, "}"); err != nil {
		t.Fatal(err)
	}
}

// Bytes returns the size in bytes of the IP packets that the machine has received and sent through its cable since it was turned on.
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
		const ethernet = 14 // size of the Ethernet header of each packet, in bytes
		return at(8) - ethernet*at(9), at(0) - ethernet*at(1)
	}
	t.Fatalf("interface %s is gone", l.port)
	return 0, 0
}
