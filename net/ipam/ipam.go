package ipam

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"slices"
	"sort"
	"sync"
)

// Store stores leases. Its methods are safe for concurrent use. AddLease commits durably before it returns. ReleaseLeases survives the end
// of the process; a power cut may restore the leases, and Reconcile then releases them again. ipamtest.Test checks an implementation.
type Store interface {
	// AddLease leases an address to an owner. If another owner has the address, the error wraps fs.ErrExist. If the same owner already has
	// the address, AddLease succeeds.
	AddLease(ctx context.Context, addr netip.Addr, owner string) error
	// ReleaseLeases removes all leases of an owner. If the owner has no leases, it succeeds.
	ReleaseLeases(ctx context.Context, owner string) error
	// Leases returns every leased address with its owner.
	Leases(ctx context.Context) (map[netip.Addr]string, error)
}

// ErrExhausted means that a range has no free address. In this case, the error of Allocate wraps ErrExhausted.
var ErrExhausted = errors.New("no free address")

// Allocator assigns one address of each range to an owner. Its methods are safe for concurrent use, but not for concurrent calls with the
// same owner.
type Allocator struct {
	store Store

	mu     sync.Mutex
	ranges []*addrRange
	owner  map[netip.Addr]string // mirrors the store, plus the leases that are being committed
	leases map[string][]netip.Addr
}

// New loads the leases from the store. The caller sets the ranges with SetRanges.
func New(ctx context.Context, store Store) (*Allocator, error) {
	taken, err := store.Leases(ctx)
	if err != nil {
		return nil, fmt.Errorf("load address leases: %w", err)
	}
	a := &Allocator{store: store, owner: maps.Clone(taken), leases: map[string][]netip.Addr{}}
	if a.owner == nil {
		a.owner = map[netip.Addr]string{}
	}
	addrs := slices.Collect(maps.Keys(taken))
	sort.Slice(addrs, func(i, j int) bool { return addrs[i].Less(addrs[j]) })
	for _, addr := range addrs {
		a.leases[taken[addr]] = append(a.leases[taken[addr]], addr)
	}
	return a, nil
}

// SetRanges replaces the ranges from which new addresses are assigned. There may be one range per IP family. Leases outside the new ranges
// stay until they are released.
func (a *Allocator) SetRanges(prefixes []netip.Prefix) error {
	var ranges []*addrRange
	for _, p := range prefixes {
		r, err := newRange(p)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(ranges, func(o *addrRange) bool { return o.first.Is4() == r.first.Is4() }) {
			return fmt.Errorf("pod CIDR %s: only one per family is possible", p)
		}
		ranges = append(ranges, r)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, r := range ranges {
		if same := slices.IndexFunc(a.ranges, func(o *addrRange) bool { return o.prefix == r.prefix }); same >= 0 {
			ranges[i] = a.ranges[same] // keeps the last assigned address
			continue
		}
		for addr := range a.owner {
			if r.contains(addr) && (!r.last.IsValid() || r.last.Less(addr)) {
				r.last = addr // after a restart, continue after the highest lease
			}
		}
	}
	a.ranges = ranges
	return nil
}

// Allocate leases one address of each range to an owner and returns the addresses in the order of the ranges. For a range in which the
// owner already has a lease, it returns the leased address.
func (a *Allocator) Allocate(ctx context.Context, owner string) ([]netip.Addr, error) {
	a.mu.Lock()
	ranges := a.ranges
	existing := slices.Clone(a.leases[owner])
	a.mu.Unlock()
	if len(ranges) == 0 {
		return nil, errors.New("no pod CIDR is set")
	}
	addrs := make([]netip.Addr, len(ranges))
	errs := make([]error, len(ranges))
	var wg sync.WaitGroup // the calls are concurrent, so that the store writes both families in one transaction
	for i, r := range ranges {
		if at := slices.IndexFunc(existing, r.contains); at >= 0 {
			addrs[i] = existing[at]
			continue
		}
		wg.Go(func() { addrs[i], errs[i] = a.leaseNext(ctx, r, owner) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		err = fmt.Errorf("allocate address: %w", err)
		if len(existing) == 0 { // after an error, the store may nevertheless contain the lease
			err = errors.Join(err, a.Release(context.WithoutCancel(ctx), owner))
		}
		return nil, err
	}
	return addrs, nil
}

// leaseNext leases the next free address of a range. It marks the address as taken before the commit, and holds no mutex during the commit.
func (a *Allocator) leaseNext(ctx context.Context, r *addrRange, owner string) (netip.Addr, error) {
	for {
		a.mu.Lock()
		addr, ok := r.nextFree(a.owner)
		if ok {
			a.owner[addr] = owner
		}
		a.mu.Unlock()
		if !ok {
			return addr, fmt.Errorf("%w in %s: all %d are leased", ErrExhausted, r.prefix, r.size())
		}
		err := a.store.AddLease(ctx, addr, owner)
		switch {
		case err == nil:
			a.mu.Lock()
			a.leases[owner] = append(a.leases[owner], addr)
			a.mu.Unlock()
			return addr, nil
		case errors.Is(err, fs.ErrExist):
			a.mu.Lock()
			// The store has another owner for the address. The address stays taken until the leases are loaded again.
			a.owner[addr] = ""
			a.mu.Unlock()
		default:
			return addr, fmt.Errorf("lease %s: %w", addr, err) // the address stays taken until Release(owner)
		}
	}
}

// Release removes all leases of an owner.
func (a *Allocator) Release(ctx context.Context, owner string) error {
	if err := a.store.ReleaseLeases(ctx, owner); err != nil {
		return fmt.Errorf("release addresses of %s: %w", owner, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.owner, func(_ netip.Addr, o string) bool { return o == owner })
	delete(a.leases, owner)
	return nil
}

// Leases returns the addresses of every owner.
func (a *Allocator) Leases() map[string][]netip.Addr {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make(map[string][]netip.Addr, len(a.leases))
	for owner, addrs := range a.leases {
		out[owner] = slices.Clone(addrs)
	}
	return out
}

// HasAddress reports whether an owner has an address.
func (a *Allocator) HasAddress(owner string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.leases[owner]) > 0
}

// UsesPrefix reports whether an address in a prefix is leased.
func (a *Allocator) UsesPrefix(p netip.Prefix) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for addr := range a.owner {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}
