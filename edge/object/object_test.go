package object

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestManyPodsOneRequest checks that one request is sent when many pods need the same new object. A pod must not wait for objects that it
// does not reference.
func TestManyPodsOneRequest(t *testing.T) {
	inWorld(t, Watch, func(w *world) {
		w.lag = 100 * time.Millisecond
		w.server.Put(configMap("shared", "1"))
		w.server.Put(configMap("slow", "2"))
		w.refuses(func(r *http.Request) int {
			if strings.Contains(r.URL.RawQuery, "slow") {
				linger(r, 10*time.Second)
			}
			return 0
		})
		slow := podOf("slow", "shared", "slow")
		var all sync.WaitGroup
		all.Go(func() { w.prepare(slow) })
		synctest.Wait()
		for i := range 50 {
			p := podOf(fmt.Sprint("p", i), "shared")
			all.Go(func() {
				if took := w.again(p); took > 200*time.Millisecond {
					w.Error(p.Name, "waited for", took)
				}
				w.wants(p, "shared", "1")
			})
		}
		all.Wait()
		w.wants(slow, "slow", "2")
		if lists := w.server.Requests("LIST configmaps"); lists != 2 {
			w.Error("lists:", lists)
		}
		if gets := w.server.Requests("LIST services"); gets != 1 {
			w.Error("services:", gets)
		}
	})
}

func TestChanges(t *testing.T) {
	inWorld(t, Watch, func(w *world) {
		a, b := podOf("a", "cm", "other"), podOf("b", "other")
		w.server.Put(configMap("cm", "1"))
		w.server.Put(configMap("other", "o"))
		w.prepare(a)
		w.prepare(b)
		w.wants(a, "cm", "1")
		w.wants(b, "cm", "error: does not reference it")
		w.pokes()

		w.server.Put(configMap("cm", "2"))
		if got := w.pokes(); got["a"] != 1 || got["b"] != 0 {
			w.Error(got)
		}
		w.wants(a, "cm", "2")
		noise := configMap("cm", "2")
		noise.Annotations = map[string]string{"only": "metadata"}
		w.server.Put(noise)
		if got := w.pokes(); len(got) != 0 {
			w.Error("Changed was called without a change:", got)
		}

		// A deleted object is kept for the pods that use it, also after a restart.
		if w.cache.Deleted(a, configMapKind, "cm") || w.cache.Deleted(a, configMapKind, "never heard of") {
			w.Error("deleted too early")
		}
		w.server.Remove(configMap("cm", ""))
		if got := w.pokes(); got["a"] != 1 {
			w.Error("Changed was not called for the deletion:", got)
		}
		late := podOf("late", "cm")
		w.prepare(late)
		for range 2 {
			w.wants(a, "cm", "2")
			if !w.cache.Deleted(a, configMapKind, "cm") || w.cache.Deleted(a, configMapKind, "other") {
				w.Error("Deleted returned the wrong result")
			}
			if _, err := w.cache.ConfigMap(late, "cm"); !apierrors.IsNotFound(err) {
				w.Error(err)
			}
			w.pods = []*v1.Pod{a, b}
			w.restart()
			w.again(late)
			time.Sleep(time.Minute)
		}
		w.server.Put(configMap("cm", "3"))
		if got := w.pokes(); got["a"] != 1 || got["late"] != 1 {
			w.Error(got)
		}
		w.wants(a, "cm", "3")
		w.wants(late, "cm", "3")
		if w.cache.Deleted(a, configMapKind, "cm") {
			w.Error("still deleted")
		}
	})
}

// TestNotFound checks that a missing object does not delay a pod. A waiting pod gets the object when the object is created.
func TestNotFound(t *testing.T) {
	inWorld(t, Watch, func(w *world) {
		p := podOf("a", "cm")
		if took := w.prepare(p); took > time.Second {
			w.Error("waited for", took)
		}
		w.wants(p, "cm", `error: configmap "cm" not found`)
		w.pokes()
		w.server.Put(configMap("cm", "1"))
		if got := w.pokes(); got["a"] != 1 {
			w.Error(got)
		}
		w.wants(p, "cm", "1")
	})
}

// TestOffline checks that a pod that ran on this node before has its objects while the API server is unreachable. A new pod must get an
// error for each object that is not stored.
func TestOffline(t *testing.T) {
	inWorld(t, Watch, func(w *world) {
		w.server.Put(configMap("cm", "1"))
		w.server.Put(service("default", "db", "10.96.0.7"))
		p := podOf("a", "cm", "optional")
		w.prepare(p)
		w.server.Disconnect()
		w.server.CloseConnections()
		w.restart()
		if took := w.again(p); took != 0 {
			w.Error("waited for", took)
		}
		w.wants(p, "cm", "1")
		w.wants(p, "optional", "error: not found")
		if s, err := w.cache.Services(p); err != nil || len(s) != 2 {
			w.Error(s, err)
		}
		n := podOf("new", "cm", "unknown")
		if took := w.prepare(n); took > 5*time.Second {
			w.Error("waited for", took)
		}
		w.wants(n, "cm", "1")
		if _, err := w.cache.ConfigMap(n, "unknown"); err == nil || apierrors.IsNotFound(err) ||
			!strings.Contains(err.Error(), "no route") {
			w.Error(err)
		}
		time.Sleep(time.Hour)
		w.pokes()
		problems := w.cache.Problems()
		if len(problems) == 0 || !strings.Contains(problems[0].Message, "no route") {
			w.Error(problems)
		}
		for _, p := range problems {
			if strings.HasSuffix(p.Object, "/unknown") == p.Known {
				w.Errorf("%+v", p)
			}
		}

		// Changes during the outage arrive within seconds after the link is up.
		w.server.Put(configMap("cm", "2"))
		w.server.Put(configMap("unknown", "3"))
		w.server.Compact()
		w.server.Reconnect()
		w.cache.Retry()
		time.Sleep(askedGap + 2*time.Second)
		w.wants(p, "cm", "2")
		w.wants(n, "unknown", "3")
		if got := w.pokes(); got["a"] != 1 || got["new"] != 2 {
			w.Error(got)
		}
		if p := w.cache.Problems(); len(p) != 0 {
			w.Error(p)
		}
	})
}

// TestForbiddenAtFirst checks that a rejected request for an object is repeated. The API server rejects such requests until it knows that
// the pod runs on this node.
func TestForbiddenAtFirst(t *testing.T) {
	inWorld(t, Watch, func(w *world) {
		w.server.Put(configMap("cm", "1"))
		n := 0
		w.refuses(func(r *http.Request) int {
			if strings.Contains(r.URL.Path, "configmaps") {
				n++
				if n < 3 {
					return http.StatusForbidden
				}
			}
			return 0
		})
		p := podOf("a", "cm")
		if took := w.prepare(p); took > time.Second {
			w.Error("waited for", took)
		}
		w.wants(p, "cm", "1")
		w.refuses(func(r *http.Request) int { return http.StatusForbidden })
		p = podOf("b", "never")
		if took := w.prepare(p); took > 10*time.Second {
			w.Error("waited for", took)
		}
		w.wants(p, "never", "error: refused")
	})
}

func TestImmutableIsNotWatched(t *testing.T) {
	inWorld(t, Watch, func(w *world) {
		m := configMap("cm", "1")
		m.Immutable = ptr(true)
		w.server.Put(m)
		p := podOf("a", "cm")
		w.prepare(p)
		w.server.Compact()
		w.restart()
		w.again(p)
		time.Sleep(time.Hour)
		w.wants(p, "cm", "1")
		if lists, watches := w.server.Requests("LIST configmaps"), w.server.Requests("WATCH configmaps"); lists != 1 || watches != 0 {
			w.Error(lists, watches)
		}
		// An object that has become immutable is no longer watched.
		w.server.Put(configMap("later", "1"))
		q := podOf("b", "later")
		w.prepare(q)
		m = configMap("later", "2")
		m.Immutable = ptr(true)
		w.server.Put(m)
		time.Sleep(time.Hour)
		w.server.CloseConnections()
		time.Sleep(time.Hour)
		w.wants(q, "later", "2")
		if watches := w.server.Requests("WATCH configmaps"); watches != 1 {
			w.Error(watches)
		}
	})
}

func TestPolling(t *testing.T) {
	for _, strategy := range []string{TTL, Get} {
		inWorld(t, strategy, func(w *world) {
			w.server.Put(configMap("cm", "1"))
			p := podOf("a", "cm")
			w.prepare(p)
			lists := func() int { return w.server.Requests("LIST configmaps") }
			if lists() != 1 || w.server.Requests("WATCH configmaps") != 0 {
				w.Error(lists())
			}
			w.pokes()
			w.server.Put(configMap("cm", "2"))
			time.Sleep(2 * pollEvery)
			if got := w.pokes(); got["a"] != 1 {
				w.Error(got)
			}
			before := lists()
			w.server.Put(configMap("cm", "3"))
			w.again(p)
			w.wants(p, "cm", map[string]string{TTL: "2", Get: "3"}[strategy])
			q := podOf("b", "cm")
			w.prepare(q)
			w.wants(q, "cm", "3")
			if got := lists() - before; got > 2 {
				w.Error(got)
			}
			w.server.Disconnect()
			w.server.CloseConnections()
			if took := w.again(p); took > updateTimeout {
				w.Error("waited for", took)
			}
			w.wants(p, "cm", "3")
		})
	}
}

// TestRelease checks that the release of a pod removes the objects that no other pod uses.
func TestRelease(t *testing.T) {
	inWorld(t, Watch, func(w *world) {
		w.server.Put(configMap("mine", "1"))
		w.server.Put(configMap("ours", "2"))
		a, b := podOf("a", "mine", "ours"), podOf("b", "ours")
		w.prepare(a)
		w.prepare(b)
		if err := w.cache.Release(w.Context(), "a"); err != nil {
			w.Error(err)
		}
		stored, err := w.store.Objects(w.Context())
		if err != nil || len(stored) != 2 {
			w.Error(stored, err)
		}
		w.wants(b, "ours", "2")
		w.wants(a, "ours", "error: does not reference it")
		w.pokes()
		w.server.Put(configMap("mine", "3"))
		w.server.Put(configMap("ours", "3"))
		if got := w.pokes(); got["a"] != 0 || got["b"] != 1 {
			w.Error(got)
		}
		// The removed objects do not return after a restart.
		w.pods = []*v1.Pod{}
		w.restart()
		if stored, err := w.store.Objects(w.Context()); err != nil || len(stored) != 0 {
			w.Error(stored, err)
		}
		if err := w.cache.Release(w.Context(), "nobody"); err != nil {
			w.Error(err)
		}
	})
}

// TestWire checks that a flapping link causes a limited number of requests. An idle link must carry no bytes.
func TestWire(t *testing.T) {
	inWorld(t, Watch, func(w *world) {
		const pods = 30
		for i := range pods {
			m := configMap(fmt.Sprint("cm", i), "1")
			w.server.Put(m)
			w.prepare(podOf(fmt.Sprint("p", i), m.Name, "kube-root-ca.crt"))
		}
		synctest.Wait()
		sent, received := w.server.Bytes()
		time.Sleep(10 * time.Minute)
		if s, r := w.server.Bytes(); s != sent || r != received {
			w.Errorf("%d bytes sent and %d received in ten idle minutes", s-sent, r-received)
		}
		before := w.server.Total()
		for range 100 { // five minutes
			w.server.CloseConnections()
			w.cache.Retry()
			time.Sleep(3 * time.Second)
		}
		if got := w.server.Total() - before; got > 12*5*(pods+3) {
			w.Error("requests while the link flaps:", got)
		}
		time.Sleep(time.Minute)
		w.pokes()
		w.server.Put(configMap("cm7", "2"))
		if got := w.pokes(); got["p7"] != 1 || len(got) != 1 {
			w.Error(got)
		}
	})
}
