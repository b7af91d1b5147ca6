package source

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/islet-edge/islet/edge/apitest"
	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/internal/podtest"
)

// TestAPIFailuresAreNoBusyLoop checks that the number of requests per minute is limited for every response of the server.
func TestAPIFailuresAreNoBusyLoop(t *testing.T) {
	for _, err := range []error{
		apierrors.NewInternalError(fmt.Errorf("broken")), apierrors.NewTooManyRequests("slow down", 3), apierrors.NewUnauthorized("who?"),
		apierrors.NewForbidden(v1.Resource("pods"), "", nil), apierrors.NewResourceExpired("always"),
		apierrors.NewServiceUnavailable("later"),
	} {
		t.Run(string(apierrors.ReasonForError(err)), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				c.Put(bound("a"))
				c.settled("listed", "a=a:1")
				c.fail(err)
				c.CloseConnections()
				time.Sleep(time.Minute)
				before := c.Total()
				time.Sleep(10 * time.Minute)
				if n := (c.Total() - before) / 10; n > 30 {
					t.Errorf("%d requests a minute", n)
				}
				c.settled("stays", "a=a:1")
				c.fail(nil)
				c.Put(bound("b"))
				time.Sleep(70 * time.Second) // no signal that the server is ready again
				c.settled("recovered", "a=a:1, b=a:1")
			})
		})
	}
}

// TestAPINoLinkIsToldByTheLink checks that a missing link is not reported as a problem of the pods, because package link reports it. While
// the node waits for its certificate, no warning is repeated.
func TestAPINoLinkIsToldByTheLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var text strings.Builder
		cfg := &rest.Config{Host: "http://127.0.0.1:1"}
		client, err := kube.New(kube.Config{
			Rest:          func() (*rest.Config, error) { return cfg, nil },
			BeforeRequest: func(context.Context) error { return fmt.Errorf("%w: Bootstrapping", kube.ErrNoLink) },
		})
		if err != nil {
			t.Fatal(err)
		}
		a, err := NewAPI(APIConfig{Client: client, Node: "n", Sink: c.Desired, Log: slog.New(slog.NewTextHandler(&text, nil))})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := a.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if text.Len() > 0 || len(c.Problems()) > 0 {
			t.Error(text.String(), c.Problems())
		}
	})
}

// TestAPISilentOrFlapping checks that the number of requests is limited for a server that accepts requests without answering, and for a
// flapping link.
func TestAPISilentOrFlapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.Put(bound("a"))
		c.settled("listed", "a=a:1")
		silent := apitest.NeverAnswer
		c.Fault.Store(&silent)
		c.CloseConnections()
		before := c.Total()
		time.Sleep(10 * time.Minute)
		if n := c.Total() - before; n < 10 || n > 40 {
			t.Errorf("%d requests in ten minutes of silence", n)
		}
		c.Fault.Store(nil)
		time.Sleep(time.Minute)
		before = c.Total()
		for range 200 { // ten minutes
			c.CloseConnections()
			select {
			case c.retry <- struct{}{}:
			default:
			}
			time.Sleep(3 * time.Second)
		}
		if n := c.Total() - before; n > 2*200 {
			t.Errorf("%d requests in 200 outages", n)
		}
		c.Put(bound("b"))
		time.Sleep(15 * time.Second)
		c.settled("recovered", "a=a:1, b=a:1")
		if n := c.Requests("LIST pods"); n != 1 {
			t.Errorf("%d lists: the version was still valid", n)
		}
	})
}

// TestAPIFlappingWatches checks that the node sends a limited number of requests to a server that closes watches immediately.
func TestAPIFlappingWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.Put(bound("a"))
		c.settled("listed", "a=a:1")
		drop := func(w http.ResponseWriter, r *http.Request) bool {
			return r.URL.Query().Get("watch") == "true"
		}
		c.Fault.Store(&drop)
		c.CloseConnections()
		time.Sleep(10 * time.Minute)
		if n := c.Requests("WATCH pods"); n > 100 {
			t.Errorf("%d watches in ten minutes", n)
		}
	})
}

// TestAPIWithoutWatchList checks a server that cannot list and watch in one request. The node must send a list request and a watch request
// to this server.
func TestAPIWithoutWatchList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.end()
		c.NoWatchList.Store(true)
		c.Put(bound("a"))
		c.start()
		c.settled("listed", "a=a:1")
		c.Put(bound("b"))
		c.settled("watched", "a=a:1, b=a:1")
		before := c.Requests("WATCH pods")
		c.Disconnect()
		c.CloseConnections()
		c.Remove(bound("a"))
		c.Compact()
		c.Reconnect()
		time.Sleep(30 * time.Second)
		c.settled("after 410", "a=a:1 ends in 30s, b=a:1")
		if n := c.Requests("WATCH pods") - before; n != 2 { // the watch that ends with 410, and the watch after the list
			t.Errorf("%d watches", n)
		}
	})
}

// TestAPIWatchListAgain checks that the node tries a WatchList again an hour after the server has rejected one, then after two, four, ...
// at most 24 hours. When the server accepts a WatchList, the delays start again at one hour.
func TestAPIWatchListAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.end()
		c.NoWatchList.Store(true)
		var asked int
		count := func(_ http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Get("sendInitialEvents") == "true" {
				asked++
			}
			return false
		}
		c.Fault.Store(&count)
		c.Put(bound("a"))
		c.start()
		c.settled("listed", "a=a:1")
		relist := func(after time.Duration, want int) {
			t.Helper()
			time.Sleep(after)
			asked = 0
			c.Disconnect()
			c.CloseConnections()
			c.Put(podtest.New("other", podtest.UID(""), podtest.Node("m"), podtest.Image("a:1"))) // newer than the node's version
			c.Compact()
			c.Reconnect()
			time.Sleep(2 * time.Minute)
			c.settled("listed again", "a=a:1")
			if asked != want {
				t.Errorf("%d of %d requests with sendInitialEvents", asked, want)
			}
		}
		relist(0, 0)
		relist(time.Hour, 1)
		relist(time.Hour, 0)
		relist(time.Hour, 1)
		for range 4 { // 4, 8, 16, 24 hours
			relist(24*time.Hour, 1)
		}
		relist(23*time.Hour, 0)
		c.NoWatchList.Store(false)
		relist(time.Hour, 1)
		relist(0, 1) // the server has accepted a WatchList
		c.NoWatchList.Store(true)
		relist(0, 1)
		relist(0, 0)
		relist(time.Hour, 1)
	})
}

// TestAPIPartOfAList checks that a pod does not end because a truncated list lacks the pod.
func TestAPIPartOfAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.Put(bound("a"))
		c.Put(bound("b"))
		c.settled("listed", "a=a:1, b=a:1")
		part := func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Get("sendInitialEvents") != "true" {
				return false
			}
			w.Header().Set("Content-Type", "application/json;stream=watch")
			_, _ = io.WriteString(w, `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":`+
				`{"namespace":"default","name":"a","uid":"`+string(c.Pod("default", "a").UID)+`","resourceVersion":"100"},`+
				`"spec":{"nodeName":"n","containers":[{"name":"c","image":"a:1"}]}}}`)
			return true
		}
		c.Fault.Store(&part)
		c.end()
		c.start() // a new agent has no version to continue from
		time.Sleep(10 * time.Minute)
		c.settled("while lists are cut off", "a=a:1, b=a:1")
		c.Fault.Store(nil)
		c.Remove(bound("b"))
		time.Sleep(2 * time.Minute)
		c.settled("listed again", "a=a:1, b=a:1 ends in 30s")
	})
}
