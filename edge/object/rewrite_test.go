package object

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/edge/store"
)

// TestRewrite checks that objects that the database has lost while the agent runs are stored again, also deleted ones that a pod still
// uses. Old copies of rows are replaced. See (*store.Store).RewriteRows.
func TestRewrite(t *testing.T) {
	inWorld(t, Watch, func(w *world) {
		for _, name := range []string{"kept", "lost", "old", "deleted"} {
			w.server.Put(configMap(name, "now"))
		}
		p := podOf("p", "kept", "lost", "old", "deleted", "none")
		w.prepare(p)
		w.server.Remove(configMap("deleted", ""))
		time.Sleep(time.Second) // the watch reports it, in the bubble's time
		w.wants(p, "deleted", "now")
		key := func(name string) store.ObjectKey {
			return store.ObjectKey{Kind: configMapKind, Namespace: "default", Name: name}
		}
		rows := func() map[store.ObjectKey]store.Object {
			all, err := w.store.Objects(w.Context())
			if err != nil {
				w.Fatal(err)
			}
			got := map[store.ObjectKey]store.Object{}
			for _, o := range all {
				got[o.ObjectKey] = o
			}
			return got
		}
		before := rows()
		list := v1.ConfigMapList{Items: []v1.ConfigMap{*configMap("old", "before")}}
		data, err := list.Marshal()
		if err != nil {
			w.Fatal(err)
		}
		for _, err := range []error{
			w.store.RemoveObjects(w.Context(), key("lost"), key("deleted"), key("none")),
			w.store.PutObject(w.Context(), store.Object{ObjectKey: key("old"), Version: "1", Data: data}),
			w.store.RewriteRows(w.Context()),
		} {
			if err != nil {
				w.Fatal(err)
			}
		}
		after := rows()
		if len(after) != len(before) {
			w.Errorf("%d rows, %d before", len(after), len(before))
		}
		for k, o := range before {
			if got := after[k]; string(got.Data) != string(o.Data) || got.Gone != o.Gone {
				w.Errorf("%v: stored %+v, before %+v", k, got, o)
			}
		}
		w.server.Disconnect()
		w.server.CloseConnections()
		w.restart()
		for _, name := range []string{"kept", "lost", "old", "deleted"} {
			w.wants(p, name, "now")
		}
		w.wants(p, "none", "error: configmap")
		w.server.Reconnect()
		w.server.Put(configMap("lost", "later"))
		time.Sleep(2 * time.Minute) // the link is up again, in the bubble's time
		w.wants(p, "lost", "later")
	})
}
