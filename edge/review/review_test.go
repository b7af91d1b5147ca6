package review

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/kube/kubetest"
)

type server struct {
	*kubetest.Server
	tokens, access atomic.Int32
	broken         atomic.Bool
}

func serve(t *testing.T) (*server, *kube.Client) {
	s := &server{Server: kubetest.New(t, authenticationv1.AddToScheme, authorizationv1.AddToScheme)}
	answer := func(w http.ResponseWriter, r *http.Request) any {
		if s.broken.Load() {
			http.Error(w, "broken", http.StatusInternalServerError)
			return nil
		}
		obj, err := s.Read(r)
		if err != nil {
			t.Error(err)
		}
		return obj
	}
	s.Mux.HandleFunc("POST /apis/authentication.k8s.io/v1/tokenreviews", func(w http.ResponseWriter, r *http.Request) {
		s.tokens.Add(1)
		if tr, ok := answer(w, r).(*authenticationv1.TokenReview); ok {
			if name, good := strings.CutPrefix(tr.Spec.Token, "good-"); good {
				tr.Status = authenticationv1.TokenReviewStatus{Authenticated: true,
					User: authenticationv1.UserInfo{Username: name, Groups: []string{"g"}}}
			}
			s.Write(w, r, http.StatusCreated, tr)
		}
	})
	s.Mux.HandleFunc("POST /apis/authorization.k8s.io/v1/subjectaccessreviews", func(w http.ResponseWriter, r *http.Request) {
		s.access.Add(1)
		if sar, ok := answer(w, r).(*authorizationv1.SubjectAccessReview); ok {
			sar.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: sar.Spec.User == "alice", Reason: "because"}
			s.Write(w, r, http.StatusCreated, sar)
		}
	})
	cfg := s.RESTConfig()
	c, err := kube.New(kube.Config{Rest: func() (*rest.Config, error) { return cfg, nil }})
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

func TestTokens(t *testing.T) {
	s, c := serve(t)
	tokens := NewTokens(c, time.Minute)
	s.broken.Store(true)
	if u, err := tokens.AuthenticateToken(t.Context(), "good-bob"); u != nil || err == nil {
		t.Error("a broken server authenticates no client")
	}
	s.broken.Store(false)
	s.tokens.Store(0)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			u, err := tokens.AuthenticateToken(t.Context(), "good-bob")
			if err != nil || u == nil || u.Username != "bob" || u.Groups[0] != "g" {
				t.Errorf("got %v, %v", u, err)
			}
			if u, err := tokens.AuthenticateToken(t.Context(), "bad"); u != nil || err != nil {
				t.Errorf("got %v, %v", u, err)
			}
		})
	}
	all.Wait()
	if n := s.tokens.Load(); n != 2 {
		t.Errorf("%d reviews for two tokens", n)
	}
	if u, _ := tokens.AuthenticateToken(t.Context(), ""); u != nil || s.tokens.Load() != 2 {
		t.Error("an empty token needs no review")
	}
	for key := range tokens.answers.entries {
		if strings.Contains(key, "bob") {
			t.Error("a token is cached in plain text")
		}
	}
}

func TestAccess(t *testing.T) {
	s, c := serve(t)
	access := NewAccess(c, time.Minute, 0)
	ask := func(user, verb string) bool {
		status, err := access.Authorize(t.Context(), authorizationv1.SubjectAccessReviewSpec{
			User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Resource: "nodes",
				Subresource: "proxy", Name: "n"},
		})
		if err != nil || status.Reason != "because" {
			t.Errorf("got %v, %v", status, err)
		}
		return status.Allowed
	}
	for range 2 {
		if !ask("alice", "get") || ask("bob", "get") {
			t.Error("the wrong one")
		}
	}
	if n := s.access.Load(); n != 3 {
		t.Errorf("%d reviews: positive answers are cached, negative answers with a TTL of 0 are not", n)
	}
	ask("alice", "create")
	if s.access.Load() != 4 {
		t.Error("another verb needs another review")
	}
}

// TestAnswersHoldForTheirTime checks that responses are cached for their TTL. The number of cached responses must be limited.
func TestAnswersHoldForTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, asked := newAnswers(func(n any) bool { return n.(int) > 0 }, true), 0
		get := func(q string) {
			t.Helper()
			if _, err := a.get(t.Context(), q, func(context.Context) (any, time.Duration, error) {
				asked++
				return 1, time.Minute, nil
			}); err != nil {
				t.Error(err)
			}
		}
		get("q")
		time.Sleep(59 * time.Second)
		get("q")
		if asked != 1 {
			t.Errorf("asked %d times", asked)
		}
		time.Sleep(2 * time.Second)
		get("q")
		if asked != 2 {
			t.Errorf("asked %d times", asked)
		}
		for n := range 3 * maxEntries {
			get(fmt.Sprint(n))
		}
		if len(a.entries) > maxEntries {
			t.Errorf("%d answers are cached", len(a.entries))
		}
	})
}

// TestAnswersThatLandMeanwhile checks that a caller sends no second request if another caller stores the response just after the cache
// lookup.
func TestAnswersThatLandMeanwhile(t *testing.T) {
	for range 200 {
		a := newAnswers(func(n any) bool { return n.(int) > 0 }, true)
		var asked atomic.Int32
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				v, err := a.get(t.Context(), "q", func(context.Context) (any, time.Duration, error) {
					asked.Add(1)
					return 7, time.Minute, nil
				})
				if v != 7 || err != nil {
					t.Errorf("got %v, %v", v, err)
				}
			})
		}
		all.Wait()
		if n := asked.Load(); n != 1 {
			t.Fatalf("asked %d times", n)
		}
	}
}

// TestWhoGoesDoesNotTakeOthersAlong checks that a request continues when the context of its first caller ends.
func TestWhoGoesDoesNotTakeOthersAlong(t *testing.T) {
	a := newAnswers(func(n any) bool { return n.(int) > 0 }, true)
	asked, answer := make(chan struct{}), make(chan struct{})
	ask := func(ctx context.Context) (any, time.Duration, error) {
		close(asked)
		<-answer
		return 7, time.Minute, ctx.Err()
	}
	first, cancel := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() { _, err := a.get(first, "q", ask); gone <- err }()
	<-asked
	cancel()
	if err := <-gone; err == nil {
		t.Error("want the end of the context")
	}
	got := make(chan any)
	go func() { v, _ := a.get(t.Context(), "q", ask); got <- v }()
	close(answer)
	if v := <-got; v != 7 {
		t.Errorf("got %v", v)
	}
}
