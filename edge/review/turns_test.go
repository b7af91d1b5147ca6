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
)

type fromKey struct{}

// from returns a context of a request from a network.
func from(t *testing.T, prefix string) context.Context {
	return context.WithValue(t.Context(), fromKey{}, netip.MustParsePrefix(prefix))
}

// A slow is an API server behind a slow link. It accepts the tokens that begin with "good".
type slow struct {
	*answerCache
	reviews, running, most atomic.Int32
}

func newSlow() *slow {
	s := &slow{answerCache: newAnswers(func(ok any) bool { return ok.(bool) }, true)}
	s.networkOf = func(ctx context.Context) netip.Prefix { return ctx.Value(fromKey{}).(netip.Prefix) }
	return s
}

func (s *slow) review(ctx context.Context, token string) (bool, error) {
	ok, err := s.get(ctx, token, func(context.Context) (any, time.Duration, error) {
		s.reviews.Add(1)
		s.most.Store(max(s.most.Load(), s.running.Add(1)))
		defer s.running.Add(-1)
		time.Sleep(time.Second)
		switch {
		case strings.HasPrefix(token, "good"):
			return true, 2 * time.Minute, nil
		case strings.HasPrefix(token, "error"): // an API server answers a status with an error
			return false, 0, fmt.Errorf("%w: x", errRejected)
		}
		return false, 2 * time.Minute, nil
	})
	return ok == true, err
}

// attack sends new tokens from a network, with the given number of requests at a time, until the context ends.
func (s *slow) attack(ctx context.Context, kind string, requests int) {
	for i := range requests {
		go func() {
			for n := 0; ctx.Err() == nil; n++ {
				_, _ = s.review(ctx, fmt.Sprint(kind, ctx.Value(fromKey{}), i, " ", n))
				time.Sleep(5 * time.Second)
			}
		}()
	}
}

// TestHostileNetworks checks that networks that send invalid tokens without end keep no client with a valid token waiting, and that they
// cause a limited number of reviews. Clients that are known from before are not affected at all.
func TestHostileNetworks(t *testing.T) {
	for _, kind := range []string{"bad", "error"} {
		for _, networks := range []int{1, 12} {
			t.Run(fmt.Sprint(kind, networks), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { attackFrom(t, kind, networks) })
			})
		}
	}
}

func attackFrom(t *testing.T, kind string, networks int) {
	s := newSlow()
	// check reviews a token, which must be accepted in time.
	check := func(who, prefix, token string, within time.Duration) {
		t.Helper()
		began := time.Now()
		if ok, err := s.review(from(t, prefix), token); !ok || err != nil || time.Since(began) > within {
			t.Errorf("%s: %t, %v after %v", who, ok, err, time.Since(began))
		}
	}
	check("before the attack", "10.1.0.0/24", "good-old", time.Second)
	end, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range networks {
		attacker := netip.MustParsePrefix(fmt.Sprintf("10.2.%d.0/24", i))
		s.attack(context.WithValue(end, fromKey{}, attacker), kind, 2*(maxWaiting+maxOfNetwork))
	}
	time.Sleep(500 * time.Millisecond)
	const oneReview = 2 * time.Second // a review, after another one has ended
	check("the address of a known client", "10.1.0.9/32", "good-new", oneReview)
	check("a new network", "10.3.0.0/24", "good-newcomer", time.Duration(networks/4+2)*time.Second)
	for range 3 {
		time.Sleep(2*time.Minute + time.Second)
		check("a known token", "10.1.0.0/24", "good-old", oneReview)
		check("a known token from a hostile network", "10.2.0.0/24", "good-old", oneReview)
	}
	began, before := time.Now(), s.reviews.Load()
	time.Sleep(10 * time.Minute)
	// One rejection is forgotten every 10 s, and then a whole queue may begin.
	most := (time.Since(began).Seconds()/10 + maxOfNetwork + maxWaiting) * float64(networks)
	if n := float64(s.reviews.Load() - before); n > most {
		t.Errorf("%v reviews in ten minutes, more than %v", n, most)
	}
	if s.most.Load() > maxConcurrent {
		t.Errorf("%d reviews at a time", s.most.Load())
	}
	cancel()
	synctest.Wait()
	time.Sleep(time.Hour) // longer than rejections are remembered
	check("after the attack", "10.2.0.0/24", "good-last", time.Second)
	if n := len(s.turns.networks); n > networks || s.turns.free != maxConcurrent || len(s.turns.waiting) > 0 {
		t.Errorf("%d networks, %d free places", n, s.turns.free)
	}
}

// TestManyNetworks checks that the number of remembered networks is limited.
func TestManyNetworks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow()
		for i := range 1000 {
			for n := range 2 {
				if ok, err := s.review(from(t, fmt.Sprintf("10.%d.%d.0/24", i/250, i%250)), fmt.Sprint("bad", i, n)); ok || err != nil {
					t.Fatal(ok, err)
				}
			}
		}
		if n := len(s.turns.networks); n > maxNetworks {
			t.Errorf("%d networks", n)
		}
	})
}

// TestQueueOfNetwork checks that the reviews of one network beyond its queue fail at once, and that a review that has waited for too long
// leaves the queue.
func TestQueueOfNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow()
		const requests = 50
		failed := make(chan error, requests)
		ask := func(context.Context) (any, time.Duration, error) {
			time.Sleep(time.Minute)
			return false, 0, nil
		}
		for i := range requests {
			go func() {
				_, err := s.get(from(t, "10.1.0.0/24"), i, ask)
				failed <- err
			}()
		}
		synctest.Wait()
		if n := len(failed); n != requests-maxOfNetwork-maxWaiting {
			t.Errorf("%d requests failed at once", n)
		}
		time.Sleep(timeout)
		synctest.Wait()
		if n := len(failed); n != requests-maxOfNetwork {
			t.Errorf("%d requests failed after %v", n, timeout)
		}
		for range requests - maxOfNetwork {
			if err := <-failed; err == nil || errors.Is(err, errRejected) {
				t.Errorf("got %v", err)
			}
		}
		time.Sleep(time.Minute)
	})
}

// TestNegativeAnswersDisplaceNoOthers checks that a flood of invalid tokens does not remove valid tokens from the cache.
func TestNegativeAnswersDisplaceNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow()
		if ok, err := s.review(from(t, "10.1.0.0/24"), "good"); !ok || err != nil {
			t.Fatal(ok, err)
		}
		for i := range 3 * maxEntries {
			s.add(fmt.Sprint(i), false, time.Hour)
		}
		if _, err := s.review(from(t, "10.1.0.0/24"), "good"); err != nil || s.reviews.Load() != 1 || len(s.entries) > maxEntries {
			t.Errorf("%d reviews, %d entries, %v", s.reviews.Load(), len(s.entries), err)
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
