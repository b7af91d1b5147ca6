package bridge

import (
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/net/netns/netnstest"
)

// TestLostNotices checks that a wait for an address does not fail if so many routes change meanwhile that the kernel drops its messages.
func TestLostNotices(t *testing.T) {
	ns, _ := netnstest.New(t)
	h, err := ns.Netlink()
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	w := watchFor([]netip.Prefix{netip.MustParsePrefix("fd00::1/64")})
	defer w.close()
	if err := w.open(ns); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptInt(w.socket.Fd(), unix.SOL_SOCKET, unix.SO_RCVBUF, 1); err != nil {
		t.Fatal(err)
	}
	lo, err := h.LinkByIndex(1)
	if err == nil {
		err = h.LinkSetUp(lo)
	}
	if err != nil {
		t.Fatal(err)
	}
	prefix := netip.MustParsePrefix("fd01::/128")
	for range 100 {
		prefix = netip.PrefixFrom(prefix.Addr().Next(), prefix.Bits())
		if err := h.RouteAdd(&netlink.Route{LinkIndex: 1, Dst: ipNet(prefix)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.waitUsable(); err != nil {
		t.Error(err)
	}
}
