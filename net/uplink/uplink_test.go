package uplink

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/net/netns"
	"github.com/islet-edge/islet/net/netns/netnstest"
)

// A world is a network namespace that represents the machine under test. It has the interface eth0 and the bridge of the pods.
type world struct {
	*testing.T
	*netlink.Handle
	host     netns.NS
	u        *Uplink
	messages *os.File
	names    map[string]int // index of each interface, including removed ones
}

func newWorld(t *testing.T) *world {
	t.Helper()
	host, _ := netnstest.New(t)
	h, err := host.Netlink()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	w := &world{T: t, Handle: h, host: host, names: map[string]int{}}
	// The kernel would otherwise add IPv6 addresses during the test.
	w.must(host.Set(netns.Sysctl{Name: "ipv6/conf/default/disable_ipv6", Value: "1", Optional: true}))
	w.u = New(Config{Host: host, Bridge: "pods0", Log: slog.New(slog.DiscardHandler)})
	w.wire("eth0")
	w.add(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "pods0"}})
	return w
}

// wire creates a veth pair. The name of the other end is "far" followed by the given name.
func (w *world) wire(name string) {
	w.Helper()
	w.add(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "far" + name})
	w.up("far" + name)
	w.up(name)
	for _, end := range []string{name, "far" + name} {
		for w.link(end).Attrs().RawFlags&unix.IFF_RUNNING == 0 { // the kernel sets the flag asynchronously
		}
	}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) link(name string) netlink.Link {
	w.Helper()
	l, err := w.LinkByName(name)
	w.must(err)
	return l
}

func (w *world) index(name string) int { w.Helper(); return w.link(name).Attrs().Index }
func (w *world) add(l netlink.Link)    { w.Helper(); w.must(w.LinkAdd(l)) }
func (w *world) remove(name string)    { w.Helper(); w.must(w.LinkDel(w.link(name))) }
func (w *world) up(name string)        { w.Helper(); w.must(w.LinkSetUp(w.link(name))) }
func (w *world) down(name string)      { w.Helper(); w.must(w.LinkSetDown(w.link(name))) }
func (w *world) address(name, addr string) {
	w.Helper()
	w.must(w.AddrAdd(w.link(name), parse(w.T, addr)))
}

func parse(t *testing.T, s string) *netlink.Addr {
	t.Helper()
	a, err := netlink.ParseAddr(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// news waits for the next relevant message. It returns the index of the interface that the message is about.
func (w *world) news() (int, error) {
	for b := make([]byte, bufferSize); ; {
		all, err := read(w.messages, b)
		if err != nil {
			return 0, err
		}
		for _, m := range all {
			if w.u.isRelevant(m) {
				return about(m)
			}
		}
	}
}

func about(m syscall.NetlinkMessage) (int, error) {
	if m.Header.Type == unix.RTM_NEWLINK || m.Header.Type == unix.RTM_DELLINK {
		return int(nl.DeserializeIfInfomsg(m.Data).Index), nil
	}
	attrs, err := nl.ParseRouteAttr(m.Data[unix.SizeofRtMsg:])
	if err != nil {
		return 0, err
	}
	for _, a := range attrs {
		if a.Attr.Type == unix.RTA_OIF {
			return int(nl.NativeEndian().Uint32(a.Value)), nil
		}
	}
	return 0, nil
}

func listening(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	var err error
	w.messages, err = w.u.subscribe()
	w.must(err)
	t.Cleanup(func() { w.messages.Close() })
	w.must(w.messages.SetReadDeadline(time.Now().Add(time.Minute)))
	w.must(w.u.loadLinks())
	return w
}

func TestWayOut(t *testing.T) {
	w := listening(t)
	way := &netlink.Route{LinkIndex: w.index("eth0"), Gw: net.ParseIP("10.9.0.1")}
	for _, x := range []struct {
		what, about string
		do          func()
	}{
		{"a cable is pulled", "eth0", func() { w.down("fareth0") }},
		{"a cable is plugged in", "eth0", func() { w.up("fareth0") }},
		{"an address", "eth0", func() { w.address("eth0", "10.9.0.2/24") }},
		{"a way out", "eth0", func() { w.must(w.RouteAdd(way)) }},
		{"no way out", "eth0", func() { w.must(w.LinkSetAlias(w.link("eth0"), "alias")); w.must(w.RouteDel(way)) }},
		{"a modem", "wwan0", func() { w.wire("wwan0") }},
		{"no modem", "wwan0", func() { w.remove("wwan0") }},
	} {
		if x.do(); w.names[x.about] == 0 {
			w.names[x.about] = w.index(x.about)
		}
		for got := 0; got != w.names[x.about]; { // the kernel reports both ends of a veth pair
			var err error
			got, err = w.news()
			w.must(err)
		}
	}
}

// TestAddresses checks that Moved reports a new address for which there is no new route, but no address of the pods' bridge.
func TestAddresses(t *testing.T) {
	w := listening(t)
	w.address("pods0", "10.8.0.1/32")
	w.address("eth0", "10.9.0.9/32")
	for b := make([]byte, bufferSize); ; {
		all, err := read(w.messages, b)
		w.must(err)
		for _, m := range all {
			if w.u.isAddress(m) {
				if got := int(nl.NativeEndian().Uint32(m.Data[4:])); got != w.index("eth0") || w.u.isRelevant(m) {
					t.Errorf("a message about interface %d", got)
				}
				return
			}
		}
	}
}

// TestPods checks that a change of a pod's interface is not relevant. The first relevant message after such changes is about another
// interface.
func TestPods(t *testing.T) {
	w := listening(t)
	type first struct {
		about int
		err   error
	}
	told := make(chan first, 1)
	go func() {
		about, err := w.news()
		told <- first{about, err}
	}()
	w.up("pods0")
	w.address("pods0", "10.8.0.1/24")
	for range 3 {
		pod, _, end := netnstest.NewUntilEnd(t)
		ns, err := pod.Open()
		w.must(err)
		// As package bridge creates it: up, not yet a port of the bridge, and with the other end in the pod.
		attrs := netlink.LinkAttrs{Name: "isl0", Flags: net.FlagUp}
		w.add(&netlink.Veth{LinkAttrs: attrs, PeerName: "peer", PeerNamespace: netlink.NsFd(ns.Fd())})
		w.must(ns.Close())
		w.must(w.LinkSetMaster(w.link("isl0"), w.link("pods0")))
		inside, err := pod.Netlink()
		w.must(err)
		peer, err := inside.LinkByName("peer")
		w.must(err)
		w.must(inside.LinkSetUp(peer))
		inside.Close()
		w.must(w.RouteAdd(&netlink.Route{LinkIndex: w.index("isl0"), Dst: parse(t, "10.8.0.2/32").IPNet}))
		w.remove("isl0")
		end()
	}
	w.remove("pods0")
	w.wire("wwan0")
	got := <-told
	w.must(got.err)
	if got.about != w.index("wwan0") && got.about != w.index("farwwan0") {
		t.Errorf("unexpected interface %d", got.about)
	}
}

func TestRun(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.u.Run(ctx) }()
	for told := false; !told; { // Run may not listen yet
		w.down("fareth0")
		w.up("fareth0")
		select {
		case <-w.u.Changed():
			<-w.u.Moved()
			told = true
		case <-time.After(10 * time.Millisecond):
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestRunAgain checks that Run tries again after it could not listen in the network namespace.
func TestRunAgain(t *testing.T) {
	w := newWorld(t)
	path, warned := filepath.Join(t.TempDir(), "net"), make(chan struct{}, 100)
	w.u.cfg.Host = netns.At(path)
	w.u.cfg.Log = slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
		warned <- struct{}{}
		return len(p), nil
	}), nil))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.u.Run(ctx) }()
	select {
	case <-warned:
	case err := <-ended:
		t.Fatal("Run has ended", err)
	}
	w.must(os.Symlink(w.host.Path(), path))
	late := time.After(time.Minute)
	for listens := false; !listens; {
		for len(w.u.Changed()) > 0 {
			<-w.u.Changed()
		}
		w.down("fareth0")
		w.up("fareth0")
		select {
		case <-w.u.Changed():
			listens = true
		case err := <-ended:
			t.Fatal("Run has ended", err)
		case <-late:
			t.Fatal("Run does not listen again")
		case <-time.After(10 * time.Millisecond):
		}
	}
	cancel()
	w.must(<-ended)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
