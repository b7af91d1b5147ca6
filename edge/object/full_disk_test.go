package object

import (
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/disktest"
)

// TestFullDisk checks that objects and tokens that arrive while the disk is full are stored as soon as there is space, although the server
// sends nothing more. A pod then starts with them after a power cut, without a link.
func TestFullDisk(t *testing.T) {
	d := disktest.New(t)
	inWorldAt(t, filepath.Join(d.Dir, "islet.db"), Watch, func(w *world) {
		p := withToken("p", "vault", ptr(int64(30*24*3600)))
		p.Spec.Containers[0].EnvFrom = podOf("", "changed", "new", "none").Spec.Containers[0].EnvFrom
		w.server.Put(configMap("changed", "old"))
		w.prepare(podOf("other", "changed"))
		if err := w.store.UpdatePods(w.Context(), []store.Pod{{Pod: p, Seq: 2, Source: "api"}}, nil); err != nil {
			w.Fatal(err)
		}
		d.Exhaust(func(text string) error { return w.store.SetMeta(w.Context(), "text", text) })
		w.server.Put(configMap("changed", "now"))
		w.server.Put(configMap("new", "now"))
		w.again(p)
		synctest.Wait()
		afterCut := func() *world { // the node after a power cut
			db, err := store.Open(w.Context(), filepath.Join(d.Copy(), "islet.db"), slog.New(slog.DiscardHandler))
			if err != nil {
				w.Fatal(err)
			}
			defer db.Close()
			c := New(Config{Client: w.server.Client(w), Store: db, Changed: func(types.UID) {}, Log: slog.New(slog.DiscardHandler)})
			if err := c.Load(w.Context(), append(w.pods, p)); err != nil {
				w.Fatal(err)
			}
			return &world{TB: w.TB, cache: c}
		}
		cut := afterCut()
		w.wants(p, "changed", "now")
		w.wants(p, "new", "now")
		cut.wants(p, "changed", "old")
		cut.wants(p, "new", "error: ")
		d.Free()
		time.Sleep(3 * time.Minute) // the store repeats its writes, in the bubble's time
		cut = afterCut()
		cut.wants(p, "changed", "now")
		cut.wants(p, "new", "now")
		cut.wants(p, "none", "error: configmap")
		if got := cut.token(p); got != "ey1" || got != w.token(p) {
			w.Error(got)
		}
	})
}
