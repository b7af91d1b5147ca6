package netns_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/islet-edge/islet/net/netns"
	"github.com/islet-edge/islet/net/netns/netnstest"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// dummy returns the request that creates an interface.
func dummy(name string) netns.Request {
	r := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	r.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	r.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("dummy"))
	r.AddData(info)
	return netns.Request{NetlinkRequest: r, What: "create " + name}
}

func openSocket(t *testing.T, ns netns.NS) *netns.Socket {
	t.Helper()
	s, err := ns.Socket()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// TestSend sends more requests than one batch can contain. Errors must be reported for their requests, and must not stop the others.
func TestSend(t *testing.T) {
	ns, _ := netnstest.New(t)
	s := openSocket(t, ns)
	if err := s.Send(dummy("first")); errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip("the kernel has no dummy interfaces")
	} else if err != nil {
		t.Fatal(err)
	}
	var all []netns.Request
	for i := range 150 {
		all = append(all, dummy(fmt.Sprint("d", i)))
	}
	all[3], all[70] = dummy("first"), dummy("first")
	all[3].Accept = unix.EEXIST
	err := s.Send(all...)
	if !errors.Is(err, unix.EEXIST) || strings.Count(err.Error(), "create first") != 1 {
		t.Errorf("error: %v", err)
	}
	for _, name := range []string{"d0", "d4", "d69", "d71", "d149"} {
		if _, err := s.Index(name); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Index("d3"); !errors.Is(err, unix.ENODEV) {
		t.Errorf("an interface that does not exist: %v", err)
	}
	if err := s.Await(0); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("a result is left: %v", err)
	}
	if err := s.Send(); err != nil {
		t.Errorf("no requests: %v", err)
	}
}

// TestFakeResults sends a socket the results of other requests than its own, as a privileged pod in the namespace could do.
func TestFakeResults(t *testing.T) {
	ns, _ := netnstest.New(t)
	s := openSocket(t, ns)
	if err := s.Send(dummy("first")); err != nil {
		t.Skip(err)
	}
	address, err := unix.Getsockname(s.Fd())
	if err != nil {
		t.Fatal(err)
	}
	err = ns.Do(func() error {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for _, length := range []uint32{36, 0, 1 << 31} {
			fake := make([]byte, 36)
			binary.NativeEndian.PutUint32(fake, length)
			binary.NativeEndian.PutUint16(fake[4:], unix.NLMSG_ERROR)
			binary.NativeEndian.PutUint32(fake[8:], 2) // the sequence number of the next request
			if err := unix.Sendto(fd, fake, 0, address); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(dummy("first")); !errors.Is(err, unix.EEXIST) {
		t.Errorf("the result is that of another program: %v", err)
	}
}

// TestReadOnlySysctls checks that a sysctl with the right value is not written, as in a container whose /proc/sys is read-only.
func TestReadOnlySysctls(t *testing.T) {
	ns, _ := netnstest.New(t)
	name := "ipv4/ip_forward"
	if err := ns.Set(netns.Sysctl{Name: name, Value: "1"}); err != nil {
		t.Fatal(err)
	}
	err := ns.Do(func() error {
		runtime.LockOSThread() // never unlocked: the mount namespace ends with the thread
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return err
		}
		const dir = "/proc/sys"
		err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount(dir, dir, "", unix.MS_BIND, ""),
			unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
		if err != nil {
			return err
		}
		if before, err := netns.SwapHere(netns.Sysctl{Name: name, Value: "1"}); err != nil || len(before) > 0 {
			t.Errorf("the same value: %v, %v", before, err)
		}
		if _, err := netns.SwapHere(netns.Sysctl{Name: name, Value: "0"}); !errors.Is(err, unix.EROFS) {
			t.Errorf("another value: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
