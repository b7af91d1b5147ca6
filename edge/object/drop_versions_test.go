package object

import (
	"testing"
	"time"
)

// TestRestoredServer checks that the cache lists all objects again after a call of Void, also after a restart. A watch would receive no
// events, because it begins at a version that the restored server does not have yet.
func TestRestoredServer(t *testing.T) {
	inWorld(t, Watch, func(w *world) {
		w.server.Put(configMap("wifi", "old"))
		p := podOf("a", "wifi")
		w.prepare(p)
		backup := w.server.Snapshot()
		for range 20 {
			w.server.Put(configMap("other", "x"))
		}
		w.server.Put(configMap("wifi", "newer"))
		time.Sleep(time.Second)
		w.wants(p, "wifi", "newer")

		w.stop()
		w.server.Restore(backup, 0)
		w.start(Watch)
		time.Sleep(time.Minute)
		w.wants(p, "wifi", "newer") // the watch has received no event
		if err := w.cache.DropVersions(w.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		w.wants(p, "wifi", "old")
		w.server.Put(configMap("wifi", "after"))
		time.Sleep(time.Minute)
		w.wants(p, "wifi", "after")
		w.restart()
		w.server.Put(configMap("wifi", "last"))
		time.Sleep(time.Minute)
		w.wants(p, "wifi", "last")
	})
}

// TestVoidWithoutNews checks that an unchanged object is stored again with its new version.
func TestVoidWithoutNews(t *testing.T) {
	inWorld(t, Watch, func(w *world) {
		w.server.Put(configMap("wifi", "same"))
		p := podOf("a", "wifi")
		w.prepare(p)
		version := func() string {
			all, err := w.store.Objects(w.Context())
			if err != nil || len(all) == 0 {
				t.Fatal(all, err)
			}
			return all[0].Version
		}
		before := version()
		if err := w.cache.DropVersions(w.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if now := version(); now == "" || now != before {
			t.Errorf("the stored version is %q, before %q", now, before)
		}
		if n := len(w.pokes()); n > 1 {
			t.Errorf("Changed was called for %d pods", n)
		}
	})
}
