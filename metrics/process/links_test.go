package process

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLinks checks that the traffic of a pod's interface changes only the counters of the interface's host end. HostEnds must be empty if
// an interface is not a veth, or if the pod has an additional interface.
func TestLinks(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	done := make(chan struct{})
	go func() { // the thread ends with its network namespace
		defer close(done)
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Error(err)
			return
		}
		links(t)
	}()
	<-done
}

func links(t *testing.T) {
	run := func(args ...string) bool {
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		if err != nil {
			t.Errorf("%q: %v: %s", args, err, out)
		}
		return err == nil
	}
	pods := make([]int, 2)
	for i := range pods {
		cmd := exec.Command("cat")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		in, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Error(err)
			return
		}
		defer cmd.Wait()
		defer in.Close()
		pods[i] = cmd.Process.Pid
		host, pid := fmt.Sprintf("h%d", i), fmt.Sprint(pods[i])
		ok := run("ip", "link", "add", host, "type", "veth", "peer", "name", "eth0", "netns", pid) &&
			run("nsenter", "-t", pid, "-n", "ip", "link", "set", "eth0", "addrgenmode", "none", "up") &&
			run("ip", "link", "set", host, "addrgenmode", "none", "up") && run("ip", "addr", "add", fmt.Sprintf("10.9.%d.1/24", i), "dev", host) &&
			run("ip", "neigh", "add", fmt.Sprintf("10.9.%d.2", i), "lladdr", "02:00:00:00:00:01", "dev", host)
		if !ok {
			return
		}
	}
	var ways [2]HostEnds
	var l Links
	for i, pid := range pods {
		if n := (Reader{}).Network(pid); len(n) != 1 || n[0].Name != "eth0" {
			t.Errorf("pod %d has %+v", i, n)
		}
		ways[i] = l.HostEnds(HostEnds{}, pid, 1)
		if len(ways[i].ends) != 1 {
			t.Errorf("pod %d has no host end: %+v", i, ways[i])
		}
		if other := l.HostEnds(HostEnds{}, pid, 2); len(other.ends) != 0 {
			t.Errorf("two interfaces have one end: %+v", other)
		}
	}
	if again := new(Links); !again.IsSame(ways[0]) || !again.IsSame(ways[1]) || again.IsSame(HostEnds{}) {
		t.Errorf("nothing went: %+v", ways)
	}
	c, err := net.Dial("udp", "10.9.0.2:9")
	if err == nil {
		_, err = c.Write([]byte("x"))
		c.Close()
	}
	if err != nil {
		t.Error(err)
		return
	}
	now := new(Links)
	if now.IsSame(ways[0]) || !now.IsSame(ways[1]) {
		t.Errorf("after a packet to the first: %+v", now.counted)
	}
	if w := now.HostEnds(ways[0], pods[0], 1); !now.IsSame(w) || w.ends[0] != ways[0].ends[0] {
		t.Errorf("the host ends are %+v, were %+v", w, ways[0])
	}
	run("ip", "link", "del", "h1")
	if gone := new(Links); gone.IsSame(ways[1]) || len(gone.HostEnds(ways[1], pods[1], 1).ends) != 0 {
		t.Error("IsSame returned true for a removed link")
	}
	run("nsenter", "-t", fmt.Sprint(pods[1]), "-n", "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth1")
	if w := new(Links).HostEnds(HostEnds{}, pods[1], 2); len(w.ends) != 0 {
		t.Errorf("an interface without a host end has %+v", w)
	}
	if w := new(Links).HostEnds(HostEnds{}, 1<<22+1, 1); len(w.ends) != 0 {
		t.Errorf("HostEnds of a missing process returned %+v", w)
	}
}

// FuzzAttributes checks that no bytes beyond the end of a message are read.
func FuzzAttributes(f *testing.F) {
	f.Add([]byte{8, 0, 1, 0, 1, 2, 3, 4, 5, 0, 2, 0, 9})
	f.Add([]byte(strings.Repeat("\x04\x00\x01\x00", 9) + "\x03\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		sum := 0
		for _, data := range eachAttribute(b) {
			sum += 4 + len(data)
		}
		if sum > len(b) {
			t.Errorf("%d bytes of %d", sum, len(b))
		}
	})
}
