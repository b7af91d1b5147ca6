package local

import (
	"testing"

	"github.com/islet-edge/islet/edge/manifest"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/keys"
)

// TestRewrite checks that objects that the database has lost while the agent runs are stored again, and that old copies of removed objects
// are removed. Nobody else has the objects of islet apply. See (*store.Store).RewriteRows.
func TestRewrite(t *testing.T) {
	w := newWorld(t)
	w.set(keys.SourceFile, "", configMap("file", "now", "/a"), claim("claim", "1Gi", "/a"))
	_, err := w.Apply(t.Context(), []manifest.Object{configMap("applied", "now", "").Object, configMap("other", "now", "").Object}, false)
	w.must(err)
	p := podOf("p", keys.SourceLocal, "applied", "removed")
	w.Register(p)
	before, err := w.store.Locals(t.Context())
	w.must(err)
	if len(before) != 4 {
		t.Fatal(before)
	}
	var lost []store.LocalKey
	var old []store.Local
	for _, o := range before {
		if o.Name == "other" { // an old copy
			removed := o
			removed.Name = "removed"
			o.Data = nil
			old = append(old, o, removed)
		} else {
			lost = append(lost, o.LocalKey)
		}
	}
	strange := store.Local{LocalKey: store.LocalKey{Source: keys.SourceLocal, Kind: "OfANewerIslet", Name: "x"}}
	w.must(w.store.UpdateLocals(t.Context(), append(old, strange), lost))
	w.must(w.store.RewriteRows(t.Context()))
	after, err := w.store.Locals(t.Context())
	w.must(err)
	if len(after) != len(before)+1 {
		t.Errorf("%d rows, before %d", len(after), len(before))
	}
	for _, o := range after {
		if o.Name == "removed" {
			t.Error("an old copy of a removed object is stored")
		}
	}
	w.restart(p)
	if got := w.value(p, "applied"); got != "now" {
		t.Error(got)
	}
}
