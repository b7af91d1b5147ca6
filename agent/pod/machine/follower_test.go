package machine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/podtest"
	"github.com/islet-edge/islet/internal/retry"
)

// metaMap implements Meta.
type metaMap struct {
	mu     sync.Mutex
	values map[string]string
}

func (m *metaMap) Meta(_ context.Context, key string) (string, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	value, known := m.values[key]
	return value, known, nil
}

func (m *metaMap) SetMeta(_ context.Context, key, value string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values[key] = value
	return nil
}

// followed is a machine with a Follower.
type followed struct {
	*Machine
	meta    *metaMap
	moved   chan struct{}
	changed chan struct{} // receives a value for each call of Changed
	servers chan string   // receives the servers of each pod for each update: inherits, own
}

func follow(t *testing.T, resolv string, flags ...string) *followed {
	t.Helper()
	cfg, _, err := config.Load(append([]string{"--hostname-override=n", "--state-dir=" + t.TempDir(), "--resolv-conf=" + resolv}, flags...))
	if err != nil {
		t.Fatal(err)
	}
	f := &followed{meta: &metaMap{values: map[string]string{}}, moved: make(chan struct{}), changed: make(chan struct{}, 100),
		servers: make(chan string, 100)}
	if f.Machine, err = New(t.Context(), cfg, f.meta, nil, nil); err != nil {
		t.Fatal(err)
	}
	f.Now() // the parts of the agent that are opened before Run ask for the addresses
	return f
}

// run runs the Follower until the test ends.
func (f *followed) run(t *testing.T) {
	own := podtest.New("own")
	own.Spec.DNSPolicy, own.Spec.DNSConfig = v1.DNSNone, &v1.PodDNSConfig{Nameservers: []string{"192.0.2.99"}}
	pods := map[types.UID]*v1.Pod{"inherits": podtest.New("inherits"), "own": own}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	follower := Follower{
		Machine: f.Machine, Moved: f.moved, Changed: func() { f.changed <- struct{}{} }, Log: slog.New(slog.DiscardHandler),
		Came:      func() { t.Error("the machine had an address before") },
		addresses: retry.Pace{First: time.Millisecond}, dns: retry.Pace{First: time.Millisecond},
		Pod: func(uid types.UID) *v1.Pod { return pods[uid] },
		UpdateDNS: func(dns func(*cri.PodSandboxMetadata) *cri.DNSConfig) error {
			if dns(&cri.PodSandboxMetadata{Uid: "own"}) != nil || dns(&cri.PodSandboxMetadata{Uid: "unknown"}) != nil {
				t.Error("a sandbox without the host's servers is updated")
			}
			f.servers <- strings.Join(dns(&cri.PodSandboxMetadata{Uid: "inherits"}).GetServers(), " ")
			return nil
		},
	}
	go func() { ended <- follower.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// awaitServers waits for an update of the sandboxes with the given servers.
func (f *followed) awaitServers(want string) {
	for got := ""; got != want; {
		got = <-f.servers
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestResolvConfComesLater checks that sandboxes get the host's DNS servers, whether the resolv.conf is written in place, replaced, or
// created in a missing directory to which a symbolic link leads. While the host has no server, the sandboxes keep their last servers.
func TestResolvConfComesLater(t *testing.T) {
	dir := t.TempDir()
	path, target := filepath.Join(dir, "etc/resolv.conf"), filepath.Join(dir, "run/resolve/resolv.conf")
	write(t, path, "")
	f := follow(t, path, "--node-ip=192.0.2.7")
	f.run(t)
	write(t, path, "nameserver 192.0.2.1\n")
	f.awaitServers("192.0.2.1")
	write(t, path+".new", "nameserver 192.0.2.2\n")
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	f.awaitServers("192.0.2.2")
	if err := os.Symlink("../run/resolve/resolv.conf", path+".new"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	write(t, target, "nameserver 192.0.2.3\n")
	f.awaitServers("192.0.2.3")
	if err := os.RemoveAll(filepath.Dir(target)); err != nil {
		t.Fatal(err)
	}
	write(t, target, "nameserver 192.0.2.4\n")
	f.awaitServers("192.0.2.4")
	if len(f.changed) > 0 {
		t.Error("the addresses have changed")
	}
}

// TestSandboxMissedTheUpdate checks that the sandboxes are updated again if one was created with servers of an earlier moment.
func TestSandboxMissedTheUpdate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolv.conf")
	write(t, path, "nameserver 192.0.2.1\n")
	f := follow(t, path, "--node-ip=192.0.2.7")
	f.run(t)
	f.awaitServers("192.0.2.1") // the update at the start
	now := f.Now()
	f.CheckDNS(now)
	now.Resolv.Servers = nil
	f.CheckDNS(now)
	f.awaitServers("192.0.2.1")
}

// TestAddressComesLater checks that pods get a changed address, whichever part of the agent reads the address first. The node keeps its
// last address after a restart, and while the machine has no address.
func TestAddressComesLater(t *testing.T) {
	f := follow(t, "", "--node-ip=0.0.0.0")
	var found []netip.Addr
	f.find = func([]netip.Addr) ([]netip.Addr, error) { return found, nil }
	read := func(want string) {
		t.Helper()
		f.reread()
		if got := fmt.Sprint(f.Now().IPs, f.PresentIPs()); got != want {
			t.Errorf("addresses %s, want %s", got, want)
		}
	}
	f.known, f.last.IPs = nil, nil // of the machine that runs the test
	read("[] []")
	f.takeChanges()
	for _, x := range []struct {
		found []netip.Addr
		want  string
		is    changes
	}{
		{[]netip.Addr{netip.MustParseAddr("192.0.2.7")}, "[192.0.2.7] [192.0.2.7]", changes{addresses: true, first: true}},
		{nil, "[192.0.2.7] []", changes{}},
		{[]netip.Addr{netip.MustParseAddr("192.0.2.7")}, "[192.0.2.7] [192.0.2.7]", changes{}},
		{nil, "[192.0.2.7] []", changes{}},
		{[]netip.Addr{netip.MustParseAddr("192.0.2.8")}, "[192.0.2.8] [192.0.2.8]", changes{addresses: true}},
	} {
		found = x.found
		read(x.want)
		if got := f.takeChanges(); got != x.is {
			t.Errorf("%s: changes %+v", x.want, got)
		}
	}
	if err := f.storeAddresses(t.Context()); err != nil {
		t.Fatal(err)
	}
	again, err := New(t.Context(), f.cfg, f.meta, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := []netip.Addr{netip.MustParseAddr("192.0.2.8")}; !slices.Equal(again.known, want) {
		t.Errorf("after a restart %v", again.known)
	}
}

// TestFollowedAddresses checks that a new address is stored and reported, whether the kernel has announced it or a pod's worker has read
// it.
func TestFollowedAddresses(t *testing.T) {
	f := follow(t, "", "--node-ip=192.0.2.7")
	f.run(t)
	for i, ip := range []string{"192.0.2.8", "192.0.2.9"} {
		f.mu.Lock()
		f.cfg.Node.IPs = []netip.Addr{netip.MustParseAddr(ip)}
		f.mu.Unlock()
		if i == 0 {
			f.moved <- struct{}{}
		} else {
			f.reread()
		}
		<-f.changed
		if got, _, _ := f.meta.Meta(t.Context(), metaAddresses); got != ip || !slices.Equal(f.Now().IPs, []string{ip}) {
			t.Errorf("%q is stored, and the node has %q", got, f.Now().IPs)
		}
	}
}

// TestFlappingNetwork checks that the first change is reported at once, and that a network which changes all the time causes few reports:
// each is a round of all pods. The first address and the first servers never wait. An error of UpdateDNS is repeated, at growing intervals.
func TestFlappingNetwork(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolv.conf")
	write(t, path, "nameserver 192.0.2.1\n")
	m := follow(t, path, "--node-ip=192.0.2.7").Machine
	now, came, changed, updated := time.Unix(1e9, 0), 0, 0, 0
	var fails error
	pace := retry.Pace{First: firstPace, Now: func() time.Time { return now }}
	f := &Follower{Machine: m, Came: func() { came++ }, Changed: func() { changed++ }, Log: slog.New(slog.DiscardHandler), addresses: pace, dns: pace,
		UpdateDNS: func(func(*cri.PodSandboxMetadata) *cri.DNSConfig) error { updated++; return fails }}
	f.pending = changes{addresses: true, dns: true}
	f.report(t.Context())
	if came != 0 || changed != 1 || updated != 1 || f.pending != (changes{}) {
		t.Fatalf("the first change: %d, %d, %d, %+v", came, changed, updated, f.pending)
	}
	for end := now.Add(time.Hour); now.Before(end); now = now.Add(time.Second) {
		f.pending = f.pending.with(changes{addresses: true, dns: true})
		if left := f.report(t.Context()); left <= 0 || left > longestPace && f.pending != (changes{}) {
			t.Fatalf("the next report in %s", left)
		}
	}
	if changed < 12 || changed > 20 || updated != changed {
		t.Errorf("%d and %d reports in an hour", changed, updated)
	}
	f.pending, f.hadServers = changes{addresses: true, first: true, dns: true}, false
	before := updated
	f.report(t.Context())
	if came != 1 || updated != before+1 || f.pending != (changes{}) {
		t.Errorf("the first address: %d, %d, %+v", came, updated-before, f.pending)
	}
	now, fails, updated = now.Add(time.Hour), errors.New("no space"), 0
	f.pending.dns = true
	for end := now.Add(time.Hour); now.Before(end); now = now.Add(time.Second) {
		if left := f.report(t.Context()); left <= 0 || left > longestPace {
			t.Fatalf("after an error, the next report in %s", left)
		}
	}
	if updated < 12 || updated > 20 {
		t.Errorf("%d attempts in an hour", updated)
	}
	fails, now = nil, now.Add(longestPace)
	if left := f.report(t.Context()); left != time.Hour || f.pending.dns {
		t.Errorf("after a success: %s, %+v", left, f.pending)
	}
}

// TestAddressesUnreadable checks that a failed reading of the addresses is repeated without another sign of a change.
func TestAddressesUnreadable(t *testing.T) {
	f := follow(t, "", "--node-ip=0.0.0.0")
	synctest.Test(t, func(t *testing.T) {
		m := f.Machine
		m.changed = make(chan struct{}, 1)
		reads, changed := 0, 0
		m.find = func([]netip.Addr) ([]netip.Addr, error) {
			if reads++; reads < 5 {
				return nil, errors.New("too many open files")
			}
			return []netip.Addr{netip.MustParseAddr("192.0.2.8")}, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		follower := Follower{Machine: m, Changed: func() { changed++; cancel() }, Came: func() { changed++; cancel() }, Log: slog.New(slog.DiscardHandler)}
		begin := time.Now()
		if err := follower.Run(ctx); err != nil || changed != 1 || reads != 5 || time.Since(begin) > time.Minute {
			t.Errorf("%v, %d reports, %d readings in %s", err, changed, reads, time.Since(begin))
		}
	})
}
