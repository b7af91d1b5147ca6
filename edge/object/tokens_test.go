package object

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/islet-edge/islet/edge/store"
)

const hour = int64(3607)

// TestTokenIsFoundAgain checks that the key of a stored token is the request of the pod. The API server returns a changed request, which
// must not be the key.
func TestTokenIsFoundAgain(t *testing.T) {
	inWorld(t, Watch, func(w *world) {
		p := withToken("a", "", ptr(hour))
		var all sync.WaitGroup
		w.prepare(p)
		for range 10 { // as for several containers
			all.Go(func() { w.again(p) })
		}
		all.Wait()
		asked := w.requests()
		if len(asked) != 1 || len(asked[0].Spec.Audiences) != 0 || *asked[0].Spec.ExpirationSeconds != hour ||
			asked[0].Spec.BoundObjectRef.UID != "a" {
			w.Fatal(asked)
		}
		if got := w.token(p); got != "ey1" {
			w.Error(got)
		}
		w.server.Disconnect()
		w.server.CloseConnections()
		w.restart()
		if took := w.again(p); took != 0 || w.token(p) != "ey1" {
			w.Error(took, w.token(p))
		}
		// An expired token is returned if no other token exists, and is reported as a problem.
		time.Sleep(3 * time.Hour)
		if got := w.token(p); got != "ey1" {
			w.Error(got)
		}
		stale := false
		for _, p := range w.cache.Problems() {
			stale = stale || strings.Contains(p.Object, "token of pod default/a") && strings.Contains(p.Message, "it expired at")
		}
		if !stale {
			w.Error(w.cache.Problems())
		}
		w.pokes()
		w.server.Reconnect()
		w.cache.Retry()
		time.Sleep(time.Second)
		if got := w.token(p); got != "ey2" || w.pokes()["a"] == 0 {
			w.Error(got)
		}
		time.Sleep(askedGap + retryMin)
		if p := w.cache.Problems(); len(p) != 0 {
			w.Error(p)
		}
		// The token is removed with its pod.
		if err := w.cache.Release(w.Context(), "a"); err != nil {
			w.Error(err)
		}
		if got := w.token(p); !strings.HasPrefix(got, "error: ") {
			w.Error(got)
		}
		if stored, err := w.store.Tokens(w.Context()); err != nil || len(stored) != 1 || stored[0].Token != "ey2" {
			w.Error("the token was removed before its pod:", stored, err)
		}
	})
}

func TestTokenRefresh(t *testing.T) {
	inWorld(t, Watch, func(w *world) {
		short, long := withToken("short", "vault", ptr(hour)), withToken("long", "vault", ptr(int64(7*24*3600)))
		w.prepare(short)
		w.prepare(long)
		life := time.Duration(hour) * time.Second
		time.Sleep(life * 7 / 10)
		if got := len(w.requests()); got != 2 {
			w.Error("too early:", got)
		}
		time.Sleep(life / 10)
		synctest.Wait()
		if got := len(w.requests()); got != 3 || w.token(short) == "ey1" {
			w.Error("too late:", got)
		}
		time.Sleep(24*time.Hour - life*8/10)
		asked := map[string]int{}
		for _, r := range w.requests() {
			asked[r.Spec.BoundObjectRef.Name]++
		}
		if asked["long"] != 2 || asked["short"] < 30 || asked["short"] > 33 {
			w.Error(asked)
		}
	})
}

// TestTokenFailures checks that rejected token requests are repeated at growing intervals. Without a connection there are few requests.
// When the link is up, the tokens that expire first are requested first.
func TestTokenFailures(t *testing.T) {
	inWorld(t, Watch, func(w *world) {
		const pods = 20
		for i := range pods {
			w.prepare(withToken(fmt.Sprint("p", i), "", ptr(hour+int64(pods-i)*60)))
		}
		tries := func() int { return w.server.Requests("POST serviceaccounts/token") }
		before := tries()
		w.refuses(func(r *http.Request) int {
			if strings.HasSuffix(r.URL.Path, "/token") {
				return http.StatusNotFound
			}
			return 0
		})
		time.Sleep(5 * time.Hour)
		if got := tries() - before; got > pods*5*8 {
			w.Error("refused requests:", got)
		}
		before = tries()
		w.refuses(func(r *http.Request) int {
			if strings.HasSuffix(r.URL.Path, "/token") {
				return http.StatusInternalServerError
			}
			return 0
		})
		time.Sleep(time.Hour)
		if got := tries() - before; got > 60*5 {
			w.Error("requests while the server fails:", got)
		}
		n := len(w.requests())
		w.refuses(nil)
		w.cache.Retry()
		time.Sleep(10 * time.Second)
		asked := w.requests()[n:]
		if len(asked) != pods || asked[0].Spec.BoundObjectRef.Name != fmt.Sprint("p", pods-1) ||
			asked[pods-1].Spec.BoundObjectRef.Name != "p0" {
			w.Error(len(asked), asked)
		}
	})
}

// TestTokenAndTheClock checks that no token is removed when the clock shows 1970. A correction of the clock must be noticed.
func TestTokenAndTheClock(t *testing.T) {
	inWorld(t, Watch, func(w *world) {
		p := withToken("a", "", ptr(hour))
		w.prepare(p)
		w.server.Disconnect()
		w.server.CloseConnections()
		clock := time.Unix(1000, 0)
		var mu sync.Mutex
		w.now = func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return clock
		}
		w.restart()
		w.again(p)
		if got := w.token(p); got != "ey1" {
			w.Error(got)
		}
		w.server.Reconnect()
		w.cache.Retry()
		time.Sleep(5 * time.Second)
		if got := w.token(p); got != "ey2" {
			w.Error("the token was not refreshed:", got)
		}
		time.Sleep(30 * time.Minute)
		if got := len(w.requests()); got != 2 {
			w.Error("requests with a wrong clock:", got)
		}
		mu.Lock()
		clock = time.Now().Add(time.Hour) // the machine was off, and its clock was corrected
		mu.Unlock()
		time.Sleep(checkEvery + time.Minute)
		if got := len(w.requests()); got < 3 {
			w.Error("no token was refreshed after the clock was set")
		}
		before := len(w.requests())
		time.Sleep(10 * time.Hour) // the clock is now wrong by more than a token's lifetime
		if got := len(w.requests()) - before; got > 120 {
			w.Error("requests with a wrong clock:", got)
		}
	})
}

// TestFetch checks that a pod whose objects were fetched while it could not start can start later without a link, also after a restart.
func TestFetch(t *testing.T) {
	inWorld(t, Watch, func(w *world) {
		w.server.Put(configMap("m", "1"))
		w.server.Put(volumeOf("pv", ""))
		w.server.Put(claimOf("c", "pv"))
		p := withToken("p", "a", nil)
		p.Spec.Containers[0].EnvFrom = podOf("", "m").Spec.Containers[0].EnvFrom
		p.Spec.Volumes = append(p.Spec.Volumes, claimed("", "c").Spec.Volumes...)
		w.storePod(p)
		w.cache.Fetch(p)
		time.Sleep(10 * time.Second)
		w.down.Store(true)
		w.server.CloseConnections()
		for range 2 {
			if d := w.again(p); d > 0 {
				t.Errorf("the pod has waited for %s", d)
			}
			w.wants(p, "m", "1")
			if got := w.token(p); got != "ey1" {
				t.Errorf("the token is %s", got)
			}
			if _, err := w.cache.PersistentVolume(p, "pv"); err != nil {
				t.Error(err)
			}
			w.restart()
		}
		if n := len(w.requests()); n != 1 {
			t.Errorf("%d token requests", n)
		}
	})
}

// TestTokenArrives checks that a pod without a token gets a token as soon as the API server issues one.
func TestTokenArrives(t *testing.T) {
	inWorld(t, Watch, func(w *world) {
		w.refuses(func(*http.Request) int { return http.StatusNotFound })
		p := withToken("a", "", nil)
		w.prepare(p)
		if got := w.token(p); !strings.Contains(got, "refused") {
			w.Error(got)
		}
		w.refuses(nil)
		w.pokes()
		time.Sleep(10 * time.Second)
		if got := w.token(p); got != "ey1" || w.pokes()["a"] == 0 || *w.requests()[0].Spec.ExpirationSeconds != tokenSeconds {
			w.Error(got)
		}
	})
}

// TestTokenOfLostKey checks that a running pod gets a new token after the encryption key of the database was lost.
func TestTokenOfLostKey(t *testing.T) {
	inWorld(t, Watch, func(w *world) {
		p := withToken("a", "", ptr(hour))
		w.prepare(p)
		w.stop()
		if err := os.Remove(filepath.Join(filepath.Dir(w.path), store.KeyFile)); err != nil {
			w.Fatal(err)
		}
		w.start(Watch)
		time.Sleep(5 * time.Second)
		if got := w.token(p); got != "ey2" {
			w.Error(got)
		}
		w.restart()
		if got := w.token(p); got != "ey2" {
			w.Error(got)
		}
	})
}
