package kube_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/kube/kubetest"
)

// TestServerAsksToWait checks that the client repeats a rejected request after the time in its Retry-After header. If the server rejects
// the third attempt, the caller gets the error.
func TestServerAsksToWait(t *testing.T) {
	s := kubetest.New(t, corev1.AddToScheme)
	var asked, refuse atomic.Int32
	s.Mux.HandleFunc("PATCH /api/v1/namespaces/ns/pods/a", func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) <= refuse.Load() {
			w.Header().Set("Retry-After", "1")
			s.WriteError(w, r, apierrors.NewTooManyRequests("busy", 1))
			return
		}
		s.Write(w, r, 200, pod("a"))
	})
	c := client(t, s)
	patch := func() error {
		asked.Store(0)
		_, err := kube.Patch[corev1.Pod](t.Context(), c, "ns", "a", types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
		return err
	}
	refuse.Store(1)
	if began, err := time.Now(), patch(); err != nil || time.Since(began) < time.Second {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
	refuse.Store(100)
	if err := patch(); !apierrors.IsTooManyRequests(err) || !kube.IsAnswer(err) || asked.Load() != 3 {
		t.Errorf("after %d requests: %v", asked.Load(), err)
	}
}

// TestUnbound checks that a request with WithoutRateLimit does not wait for the rate limit and does not count towards it.
func TestUnbound(t *testing.T) {
	s := kubetest.New(t, corev1.AddToScheme)
	s.Mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { s.Write(w, r, 200, pod("a")) })
	c, err := kube.New(kube.Config{Rest: func() (*rest.Config, error) { return s.RESTConfig(), nil }, QPS: 0.001, Burst: 1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for range 10 {
		if _, err := kube.Get[corev1.Pod](kube.WithoutRateLimit(ctx), c, "ns", "a"); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		_, err = kube.Get[corev1.Pod](ctx, c, "ns", "a")
		if err != nil {
			break
		}
	}
	if n := c.Requests()[kube.Outcome{Method: "GET", Status: 200}]; n != 11 || err == nil {
		t.Errorf("%d requests, the last one: %v", n, err)
	}
}

// TestInternalErrorIsTheCallers checks that the client returns an internal error of the server without a retry.
func TestInternalErrorIsTheCallers(t *testing.T) {
	s := kubetest.New(t)
	var asked atomic.Int32
	s.Mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		http.Error(w, "no", http.StatusInternalServerError)
	})
	if _, err := kube.Get[corev1.Pod](t.Context(), client(t, s), "ns", "a"); !apierrors.IsInternalError(err) || asked.Load() != 1 {
		t.Errorf("after %d requests: %v", asked.Load(), err)
	}
}

// TestSilentServer checks that a request to a server that does not respond fails when the request's context ends. The test also starts a
// watch that the server does not accept.
func TestSilentServer(t *testing.T) {
	s := kubetest.New(t)
	s.Mux.HandleFunc("/", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	c := client(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := kube.Get[corev1.Pod](ctx, c, "ns", "a"); err == nil || kube.IsAnswer(err) {
		t.Errorf("got %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := kube.Watch[corev1.Pod](ctx, c, "", metav1.ListOptions{}); err == nil {
		t.Error("want an error")
	}
}

// TestGateAndCredentials checks the hooks of the client and a change of its credentials. A request that BeforeRequest rejects is not sent.
// AfterRequest gets the status of the other requests. A new configuration is used for the next request.
func TestGateAndCredentials(t *testing.T) {
	s := kubetest.New(t, corev1.AddToScheme)
	s.Mux.HandleFunc("GET /api/v1/nodes/{name}", func(w http.ResponseWriter, r *http.Request) {
		s.Write(w, r, 200, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: r.Header.Get("Authorization")}})
	})
	var cfg atomic.Pointer[rest.Config]
	use := func(token string) {
		next := s.RESTConfig()
		next.BearerToken = token
		cfg.Store(next)
	}
	use("one")
	var closed atomic.Bool
	var asked, heard atomic.Int32
	c, err := kube.New(kube.Config{
		Rest: func() (*rest.Config, error) { return cfg.Load(), nil },
		BeforeRequest: func(context.Context) error {
			asked.Add(1)
			if closed.Load() {
				return fmt.Errorf("%w: connection reset by peer", kube.ErrNoLink)
			}
			return nil
		},
		AfterRequest: func(status int, _ error) { heard.Add(int32(status)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{"one", "two"} {
		use(token)
		if n, err := kube.Get[corev1.Node](t.Context(), c, "", "x"); err != nil || n.Name != "Bearer "+token {
			t.Errorf("got %v, %v", n, err)
		}
	}
	closed.Store(true)
	asked.Store(0)
	if _, err := kube.Get[corev1.Node](t.Context(), c, "", "x"); !errors.Is(err, kube.ErrNoLink) || kube.IsAnswer(err) ||
		!strings.Contains(err.Error(), "reset") {
		t.Errorf("got %v", err)
	}
	if _, err := kube.Watch[corev1.Node](t.Context(), c, "", metav1.ListOptions{}); !errors.Is(err, kube.ErrNoLink) {
		t.Errorf("got %v", err)
	}
	if asked.Load() != 2 {
		t.Errorf("two requests were sent %d times, although the answer is the same", asked.Load())
	}
	if a, err := c.Ready(t.Context()); err != nil || a.Status != 200 || a.Date.IsZero() {
		t.Errorf("got %+v, %v", a, err)
	}
	if heard.Load() != 400 {
		t.Errorf("After heard %d", heard.Load())
	}
}
