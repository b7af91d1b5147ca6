package review

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/islet-edge/islet/internal/connlimit"
)

type fromKey struct{}

// from returns a context of a request from an address. An address that was authenticated before has the suffix /32.
func from(t *testing.T, client string) context.Context {
	addr, authenticated := strings.CutSuffix(client, "/32")
	c := connlimit.Client{Addr: netip.MustParseAddr(addr)}
	bits := 24
	if authenticated {
		bits = 32
	}
	c.Network, _ = c.Addr.Prefix(bits)
	return context.WithValue(t.Context(), fromKey{}, c)
}

// A slow is an API server behind a slow link. It accepts the tokens that begin with "good".
type slow struct {
	*answerCache
	reviews, running, most atomic.Int32
	revoked                atomic.Bool // no token is valid any more
}

func newSlow() *slow {
	s := &slow{answerCache: newAnswers(func(ok any) bool { return ok.(bool) }, true)}
	s.clientOf = func(ctx context.Context) connlimit.Client { return ctx.Value(fromKey{}).(connlimit.Client) }
	return s
}

func (s *slow) review(ctx context.Context, token string) (bool, error) {
	ok, err := s.get(ctx, token, func(context.Context) (any, time.Duration, error) {
		s.reviews.Add(1)
		s.most.Store(max(s.most.Load(), s.running.Add(1)))
		defer s.running.Add(-1)
		time.Sleep(time.Second)
		switch {
		case strings.HasPrefix(token, "good") && !s.revoked.Load():
			return true, 2 * time.Minute, nil
		case strings.HasPrefix(token, "bad"):
			return false, 2 * time.Minute, nil
		case strings.HasSuffix(token, "uncached"):
			return false, 0, nil
		}
		return false, rejectionTTL, fmt.Errorf("%w: x", errRejected) // an API server answers a status with an error
	})
	return ok == true, err
}

// attack sends new tokens from an address, with the given number of requests at a time, until ctx ends.
func (s *slow) attack(ctx context.Context, kind string, requests int) {
	for i := range requests {
		go func() {
			for n := 0; ctx.Err() == nil; n++ {
				_, _ = s.review(ctx, fmt.Sprint(kind, ctx.Value(fromKey{}), i, " ", n))
				time.Sleep(2 * time.Second)
			}
		}()
	}
}

// TestHostileNetworks checks that networks that send invalid tokens without end keep no client with a valid token waiting, not even a new
// client in a hostile network, and that each hostile address causes a limited number of reviews. Known clients are not affected at all.
func TestHostileNetworks(t *testing.T) {
	for _, kind := range []string{"bad", "error"} {
		for _, hosts := range []struct{ networks, addresses int }{{1, 1}, {12, 1}, {1, 14}, {4, 5}} {
			t.Run(fmt.Sprint(kind, hosts), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { attackFrom(t, kind, hosts.networks, hosts.addresses) })
			})
		}
	}
}

func attackFrom(t *testing.T, kind string, networks, addresses int) {
	s := newSlow()
	// check reviews a token, which must be accepted in time.
	check := func(who, client, token string, within time.Duration) {
		t.Helper()
		began := time.Now()
		if ok, err := s.review(from(t, client), token); !ok || err != nil || time.Since(began) > within {
			t.Errorf("%s: %t, %v after %v", who, ok, err, time.Since(began))
		}
	}
	check("before the attack", "10.1.0.1", "good-old", time.Second)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range networks * addresses {
		client := from(t, fmt.Sprintf("10.2.%d.%d", i%networks, 100+i/networks)).Value(fromKey{})
		s.attack(context.WithValue(ctx, fromKey{}, client), kind, 20)
	}
	time.Sleep(500 * time.Millisecond)
	const oneReview = 2 * time.Second // a review, after another one has ended
	for i, after := range []time.Duration{0, time.Minute, 2 * time.Minute} {
		time.Sleep(after + time.Second)
		newcomer := func(name string) string { return fmt.Sprint("good-", name, i) }
		check("an authenticated address", "10.1.0.9/32", newcomer("address"), oneReview)
		check("a new network", "10.3.0.1", newcomer("network"), time.Duration(networks/4+2)*time.Second)
		check("a new client in a hostile network", "10.2.0.7", newcomer("neighbour"), time.Duration(networks/4+3)*time.Second)
		check("a known token", "10.1.0.1", "good-old", oneReview)
		check("a known token from a hostile address", "10.2.0.100", "good-old", oneReview)
	}
	before, began := s.reviews.Load(), time.Now()
	time.Sleep(3 * time.Minute)
	most := (time.Since(began)/forgetEvery + 2) * time.Duration(networks*addresses)
	if n := s.reviews.Load() - before; int(n) > int(most) {
		t.Errorf("%d reviews in three minutes, more than %d", n, int(most))
	}
	if s.most.Load() > maxConcurrent {
		t.Errorf("%d reviews at a time", s.most.Load())
	}
	cancel()
	time.Sleep(time.Hour) // longer than rejections are remembered
	check("after the attack", "10.2.0.100", "good-last", time.Second)
	if a, n := len(s.turns.addresses), len(s.turns.networks); a > networks*addresses || n > 0 || s.turns.free != maxConcurrent {
		t.Errorf("%d addresses, %d networks, %d free places", a, n, s.turns.free)
	}
}

// TestSharedAddress checks that a new valid token is accepted soon if another client sends invalid tokens from the same address, for
// example because the traffic of both is masqueraded. The invalid tokens are limited nevertheless.
func TestSharedAddress(t *testing.T) {
	for _, client := range []string{"10.1.0.9", "10.1.0.9/32"} {
		t.Run(client, func(t *testing.T) { shareAddress(t, client) })
	}
}

func shareAddress(t *testing.T, client string) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow()
		ctx, cancel := context.WithCancel(from(t, client))
		defer cancel()
		s.attack(ctx, "bad", 20)
		time.Sleep(5 * time.Minute)
		accepted := false
		for i := 0; i < 20 && !accepted; i++ { // each attempt has about two chances in five
			accepted, _ = s.review(ctx, "good-rotated")
		}
		if !accepted {
			t.Error("the token was never accepted")
		}
		before := s.reviews.Load()
		time.Sleep(5 * time.Minute)
		if n := s.reviews.Load() - before; n > 302 {
			t.Errorf("%d reviews in five minutes", n)
		}
		cancel()
		time.Sleep(time.Minute)
	})
}

// TestFormerlyValidToken checks that a token that is not valid any more loses its precedence, in each way in which an API server rejects
// it. An answer with an error may be temporary, so the second one in a row counts, and the token is soon reviewed again.
func TestFormerlyValidToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow()
		for _, token := range []string{"good", "good-uncached"} {
			key, _ := s.hashQuestion(token)
			s.revoked.Store(false)
			if ok, err := s.review(from(t, "10.1.0.1"), token); !ok || err != nil || !s.wasPositive(key) {
				t.Fatal(ok, err)
			}
			s.revoked.Store(true)
			time.Sleep(3 * time.Minute)
			ok, err := s.review(from(t, "10.1.0.1"), token)
			if isFirst := errors.Is(err, errRejected); ok || s.wasPositive(key) != isFirst {
				t.Errorf("%s after a rejection: %t, %v", token, ok, err)
			} else if isFirst {
				time.Sleep(firstRejectionTTL)
				ok, err = s.review(from(t, "10.1.0.1"), token)
			}
			if ok || s.wasPositive(key) {
				t.Errorf("%s is still known: %v", token, err)
			}
		}
		s.revoked.Store(false)
		for _, want := range []bool{true, false, true, false, true} { // an API server that fails for a moment, again and again
			s.revoked.Store(!want)
			if ok, _ := s.review(from(t, "10.1.0.1"), "good-now"); ok != want {
				t.Errorf("the token is valid: %t", ok)
			}
			time.Sleep(map[bool]time.Duration{true: 3 * time.Minute, false: firstRejectionTTL}[want])
		}
	})
}

// TestSameInvalidToken checks that a client that uses one invalid token for ever, with every request to several endpoints, does not reach
// the limit of its address.
func TestSameInvalidToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow()
		for range 1000 {
			if ok, err := s.review(from(t, "10.1.0.1"), "expired"); ok || !errors.Is(err, errRejected) {
				t.Fatal(ok, err)
			}
			time.Sleep(3 * time.Second)
		}
		if n := s.turns.addresses[netip.MustParseAddr("10.1.0.1")].recent(); n > 2 {
			t.Errorf("%v recent rejections", n)
		}
	})
}

// TestManyAddresses checks that the number of remembered addresses is limited.
func TestManyAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow()
		for i := range 1000 {
			for n := range 2 {
				if ok, err := s.review(from(t, fmt.Sprintf("10.1.%d.%d", i/250, i%250)), fmt.Sprint("bad", i, n)); ok || err != nil {
					t.Fatal(ok, err)
				}
			}
		}
		if a, n := len(s.turns.addresses), len(s.turns.networks); a > maxAddresses || n > 0 {
			t.Errorf("%d addresses, %d networks", a, n)
		}
	})
}

// TestFullQueue checks that a flood removes only its own reviews from a full queue, and that a review that has waited for too long leaves
// the queue.
func TestFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow()
		const requests = 400
		failed := map[string]chan error{"10.1.0.1": make(chan error, requests), "10.1.0.2": make(chan error, 1), "10.2.0.1": make(chan error, 1)}
		ask := func(context.Context) (any, time.Duration, error) {
			time.Sleep(time.Minute)
			return false, 0, nil
		}
		for client, errs := range failed {
			for i := range cap(errs) {
				go func() {
					_, err := s.get(from(t, client), fmt.Sprint(client, i), ask)
					errs <- err
				}()
			}
		}
		synctest.Wait()
		// In each network, as many reviews run as are allowed. The neighbour's review may run or wait.
		running := 2 * maxOfNetwork
		if n := len(failed["10.1.0.1"]); n < requests-maxWaiting-running || n > requests-maxWaiting {
			t.Errorf("%d requests of the flood failed at once", n)
		}
		if n := len(failed["10.1.0.2"]) + len(failed["10.2.0.1"]); n > 0 {
			t.Errorf("%d requests of other clients failed at once", n)
		}
		time.Sleep(timeout)
		synctest.Wait()
		if n := len(failed["10.1.0.1"]); n < requests-maxOfNetwork {
			t.Errorf("%d requests failed after %v", n, timeout)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n := len(s.turns.waiting) + len(s.turns.networks); n > 0 || s.turns.free != maxConcurrent {
			t.Errorf("%d records, %d free places", n, s.turns.free)
		}
	})
}

// TestOrderOfReviews checks that known tokens are before authenticated addresses, and these before other clients.
func TestOrderOfReviews(t *testing.T) {
	n, a := &network{}, &address{rejected: 5, counted: time.Now()}
	known, first, other := &turn{network: n, address: a, known: true}, &turn{network: &network{}, address: &address{}, first: true}, &turn{
		network: &network{}, address: &address{}}
	if !known.isBefore(first) || first.isBefore(known) || !first.isBefore(other) || other.isBefore(first) {
		t.Error("wrong order")
	}
}

// TestCacheIsShared checks that a flood of invalid tokens does not remove valid tokens from the cache, and that there is room for negative
// answers after many positive ones have expired.
func TestCacheIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow()
		put := func(key string, positive bool) {
			s.add(key, cachedAnswer{positive, nil, positive, time.Now().Add(time.Minute)}, true)
			time.Sleep(time.Millisecond)
		}
		cached := func(kind string) (n int) {
			for key := range s.entries {
				if strings.HasPrefix(key, kind) {
					n++
				}
			}
			return n
		}
		for i := range 3 * maxEntries {
			put(fmt.Sprint("good", i), true)
		}
		if n := cached("good"); n != maxEntries {
			t.Errorf("%d positive answers", n)
		}
		time.Sleep(time.Hour)
		for i := range 3 * maxEntries {
			put(fmt.Sprint("bad", i), false)
		}
		if good, bad := cached("good"), cached("bad"); good != maxEntries/2 || bad != maxEntries/2 {
			t.Errorf("%d positive and %d negative answers", good, bad)
		}
		put("new", true)
		for i := range 3 * maxEntries {
			put(fmt.Sprint("other", i), false)
		}
		if n := len(s.entries); cached("new") != 1 || n > maxEntries {
			t.Errorf("the new positive answer is gone, %d entries", n)
		}
	})
}

// TestLongToken checks that a token that is longer than any real one is not sent to the API server.
func TestLongToken(t *testing.T) {
	s, c := serve(t)
	tokens := NewTokens(c, time.Minute)
	for length, want := range map[int]int32{12 << 10: 1, maxToken: 1, maxToken + 1: 0, 60 << 10: 0} {
		s.tokens.Store(0)
		u, err := tokens.AuthenticateToken(t.Context(), "good-"+strings.Repeat("x", length-5))
		if err != nil || (u != nil) != (want == 1) || s.tokens.Load() != want {
			t.Errorf("a token of %d bytes: %v, %v after %d reviews", length, u != nil, err, s.tokens.Load())
		}
	}
}
