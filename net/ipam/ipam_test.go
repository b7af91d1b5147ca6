package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"github.com/islet-edge/islet/net/ipam/ipamtest"
)

func TestMemoryKeepsTheContract(t *testing.T) {
	stores := map[string]*ipamtest.Memory{}
	ipamtest.Test(t, func(t *testing.T, name string) ipamtest.Store {
		if stores[name] == nil {
			stores[name] = &ipamtest.Memory{}
		}
		return stores[name]
	})
}

func newAllocator(t *testing.T, store Store, cidrs ...string) *Allocator {
	t.Helper()
	a, err := New(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	var prefixes []netip.Prefix
	for _, c := range cidrs {
		prefixes = append(prefixes, netip.MustParsePrefix(c))
	}
	if err := a.SetRanges(prefixes); err != nil {
		t.Fatal(err)
	}
	return a
}

func allocate(t *testing.T, a *Allocator, owner string) string {
	t.Helper()
	addrs, err := a.Allocate(t.Context(), owner)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(addrs)
}

func TestAllocateGoesRoundAndLeavesOutSpecialAddresses(t *testing.T) {
	a := newAllocator(t, &ipamtest.Memory{}, "10.0.0.0/29") // .0 is the network address, .1 the gateway, .7 the broadcast address
	for i, want := range []string{"[10.0.0.2]", "[10.0.0.3]", "[10.0.0.4]", "[10.0.0.5]", "[10.0.0.6]", "[10.0.0.2]", "[10.0.0.3]"} {
		owner := fmt.Sprint("pod", i)
		if got := allocate(t, a, owner); got != want {
			t.Errorf("allocation %d is %s, want %s", i, got, want)
		}
		if err := a.Release(t.Context(), owner); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAllocateExhausted(t *testing.T) {
	a := newAllocator(t, &ipamtest.Memory{}, "10.0.0.0/30", "fd00::/126")
	if got := allocate(t, a, "one"); got != "[10.0.0.2 fd00::2]" {
		t.Errorf("got %s", got)
	}
	if got := allocate(t, a, "one"); got != "[10.0.0.2 fd00::2]" {
		t.Errorf("again: got %s", got)
	}
	_, err := a.Allocate(t.Context(), "two") // IPv6 has no broadcast address, so one more address is free
	if !errors.Is(err, ErrExhausted) {
		t.Errorf("error is %v", err)
	}
	if got := a.Leases(); len(got) != 1 {
		t.Errorf("a failed allocation left %v", got)
	}
	if err := a.Release(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	allocate(t, a, "two")
}

func TestAllocateAfterRestart(t *testing.T) {
	store := &ipamtest.Memory{}
	a := newAllocator(t, store, "10.0.0.0/24")
	allocate(t, a, "one")
	allocate(t, a, "two")
	a = newAllocator(t, store, "10.0.0.0/24")
	if got := allocate(t, a, "two"); got != "[10.0.0.3]" {
		t.Errorf("lost its lease: %s", got)
	}
	if got := allocate(t, a, "three"); got != "[10.0.0.4]" {
		t.Errorf("next is %s", got)
	}
}

func TestSetRangesKeepsOldLeases(t *testing.T) {
	a := newAllocator(t, &ipamtest.Memory{}, "10.0.0.0/24")
	allocate(t, a, "old")
	if err := a.SetRanges([]netip.Prefix{netip.MustParsePrefix("10.9.0.0/24")}); err != nil {
		t.Fatal(err)
	}
	if got := allocate(t, a, "new"); got != "[10.9.0.2]" {
		t.Errorf("got %s", got)
	}
	if !a.HasAddress("old") {
		t.Error("the old lease is gone")
	}
}

func TestSetRangesRefuses(t *testing.T) {
	a := newAllocator(t, &ipamtest.Memory{})
	for _, bad := range [][]string{{"10.0.0.0/31"}, {"10.0.0.1/32"}, {"fd00::/127"}, {"10.0.0.0/24", "10.1.0.0/24"}, {"::ffff:10.0.0.0/120"}} {
		var prefixes []netip.Prefix
		for _, c := range bad {
			p, _ := netip.ParsePrefix(c)
			prefixes = append(prefixes, p)
		}
		if err := a.SetRanges(prefixes); err == nil {
			t.Errorf("%v: invalid ranges are accepted", bad)
		}
	}
}

func TestAllocateAnswerLost(t *testing.T) {
	lost := true
	store := &ipamtest.Memory{After: true, Fail: func(op string) error {
		if op == "add" && lost {
			lost = false
			return errors.New("disk gone")
		}
		return nil
	}}
	a := newAllocator(t, store, "10.0.0.0/29")
	if _, err := a.Allocate(t.Context(), "pod"); err == nil {
		t.Fatal("no error")
	}
	if left, _ := store.Leases(t.Context()); len(left) != 0 {
		t.Errorf("left %v", left)
	}
	allocate(t, a, "pod")
}

func TestAllocateAddressTakenBehindItsBack(t *testing.T) {
	store := &ipamtest.Memory{}
	a := newAllocator(t, store, "10.0.0.0/29")
	if err := store.AddLease(t.Context(), netip.MustParseAddr("10.0.0.2"), "stranger"); err != nil {
		t.Fatal(err)
	}
	if got := allocate(t, a, "pod"); got != "[10.0.0.3]" {
		t.Errorf("got %s", got)
	}
}

func TestAllocateConcurrently(t *testing.T) {
	a := newAllocator(t, &ipamtest.Memory{}, "10.0.0.0/24", "fd00::/64")
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[netip.Addr]bool{}
	for i := range 200 {
		wg.Go(func() {
			addrs, err := a.Allocate(context.Background(), fmt.Sprint(i))
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, addr := range addrs {
				if seen[addr] {
					t.Errorf("%s twice", addr)
				}
				seen[addr] = true
			}
		})
	}
	wg.Wait()
	if len(seen) != 400 {
		t.Errorf("%d addresses", len(seen))
	}
}

func FuzzRange(f *testing.F) {
	f.Add([]byte{10, 0, 0, 0}, 24)
	f.Add(netip.MustParseAddr("fd00::").AsSlice(), 64)
	f.Add([]byte{255, 255, 255, 255}, 30)
	f.Fuzz(func(t *testing.T, b []byte, bits int) {
		addr, _ := netip.AddrFromSlice(b)
		p, _ := addr.Prefix(bits)
		r, err := newRange(p)
		if err != nil {
			return
		}
		got, ok := r.nextFree(nil)
		if !ok || !r.prefix.Contains(got) || got == r.prefix.Addr() || got == Gateway(r.prefix) {
			t.Errorf("%s gives %s", p, got)
		}
		if !r.prefix.Contains(r.end) || r.prefix.Contains(lastOf(r.prefix).Next()) {
			t.Errorf("%s ends at %s", p, r.end)
		}
	})
}
