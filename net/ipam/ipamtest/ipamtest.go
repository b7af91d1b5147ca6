package ipamtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"sync"
	"testing"
)

// Store has the methods of ipam.Store.
type Store interface {
	AddLease(ctx context.Context, addr netip.Addr, owner string) error
	ReleaseLeases(ctx context.Context, owner string) error
	Leases(ctx context.Context) (map[netip.Addr]string, error)
}

// Test checks that a store behaves as the comments of ipam.Store require. The caller passes a function that opens a store. Two calls with
// the same name must return stores with the same durable content.
func Test(t *testing.T, open func(t *testing.T, name string) Store) {
	one, two := netip.MustParseAddr("10.42.0.2"), netip.MustParseAddr("fd00:10:42::2")
	ctx := t.Context()

	t.Run("lease and release", func(t *testing.T) {
		s := open(t, "a")
		requireNoError(t, s.AddLease(ctx, one, "pod"))
		requireNoError(t, s.AddLease(ctx, two, "pod"))
		requireNoError(t, s.AddLease(ctx, one, "pod")) // adding the same lease again succeeds
		wantLeases(t, s, map[netip.Addr]string{one: "pod", two: "pod"})
		requireNoError(t, s.ReleaseLeases(ctx, "pod"))
		requireNoError(t, s.ReleaseLeases(ctx, "pod"))
		wantLeases(t, s, map[netip.Addr]string{})
	})
	t.Run("one owner at a time", func(t *testing.T) {
		s := open(t, "b")
		requireNoError(t, s.AddLease(ctx, one, "pod"))
		if err := s.AddLease(ctx, one, "other"); !errors.Is(err, fs.ErrExist) {
			t.Errorf("second owner: %v, want an error that wraps fs.ErrExist", err)
		}
		requireNoError(t, s.ReleaseLeases(ctx, "other"))
		wantLeases(t, s, map[netip.Addr]string{one: "pod"})
	})
	t.Run("durable", func(t *testing.T) {
		requireNoError(t, open(t, "c").AddLease(ctx, two, "pod"))
		wantLeases(t, open(t, "c"), map[netip.Addr]string{two: "pod"})
	})
	t.Run("concurrent", func(t *testing.T) {
		s := open(t, "d")
		var wg sync.WaitGroup
		var mu sync.Mutex
		want := map[netip.Addr]string{}
		for i := range 64 {
			addr := netip.AddrFrom4([4]byte{10, 42, 0, byte(2 + i/2)}) // two owners try to get each address
			wg.Go(func() {
				owner := fmt.Sprint("pod", i)
				switch err := s.AddLease(ctx, addr, owner); {
				case err == nil:
					mu.Lock()
					defer mu.Unlock()
					if want[addr] != "" {
						t.Errorf("%s has two owners", addr)
					}
					want[addr] = owner
				case !errors.Is(err, fs.ErrExist):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		wantLeases(t, s, want)
	})
	t.Run("ended context", func(t *testing.T) {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		s := open(t, "e")
		if s.AddLease(ended, one, "pod") == nil { // a canceled call may succeed only if it stored the lease
			wantLeases(t, s, map[netip.Addr]string{one: "pod"})
		}
	})
}

func requireNoError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantLeases(t *testing.T, s Store, want map[netip.Addr]string) {
	t.Helper()
	got, err := s.Leases(context.Background())
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("leases are %v (%v), want %v", got, err, want)
	}
}

// Memory is a Store in memory. The zero value is empty and ready to use.
type Memory struct {
	mu     sync.Mutex
	leases map[netip.Addr]string

	// Fail is called before each change, and may be nil. If it returns an error, the change is not made, and the caller gets the error. If
	// After is true, the change is made nevertheless, as if only the reply had been lost.
	Fail  func(op string) error
	After bool
}

func (m *Memory) change(op string, f func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leases == nil {
		m.leases = map[netip.Addr]string{}
	}
	if m.Fail != nil {
		if err := m.Fail(op); err != nil {
			if m.After {
				_ = f()
			}
			return err
		}
	}
	return f()
}

// AddLease implements ipam.Store. It calls Fail with the operation "add".
func (m *Memory) AddLease(ctx context.Context, addr netip.Addr, owner string) error {
	return m.change("add", func() error {
		if leasedTo, ok := m.leases[addr]; ok && leasedTo != owner {
			return fmt.Errorf("%s is leased to %s: %w", addr, leasedTo, fs.ErrExist)
		}
		m.leases[addr] = owner
		return nil
	})
}

// ReleaseLeases implements ipam.Store. It calls Fail with the operation "release".
func (m *Memory) ReleaseLeases(ctx context.Context, owner string) error {
	return m.change("release", func() error {
		maps.DeleteFunc(m.leases, func(_ netip.Addr, o string) bool { return o == owner })
		return nil
	})
}

// Leases implements ipam.Store.
func (m *Memory) Leases(ctx context.Context) (map[netip.Addr]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leases == nil {
		return map[netip.Addr]string{}, nil
	}
	return maps.Clone(m.leases), nil
}
