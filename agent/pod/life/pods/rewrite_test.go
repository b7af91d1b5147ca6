package pods

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/internal/podtest"
)

// TestRewriteStatuses checks that statuses that the database has lost while the agent runs are stored again, because the status of a pod
// that has ended cannot be derived from anything else. See (*store.Store).RewriteRows.
func TestRewriteStatuses(t *testing.T) {
	w := newWorld(t)
	pod := podtest.New("a")
	if err := w.desired.Set(t.Context(), desired.File, []desired.SourcePod{{Pod: pod}}, nil); err != nil {
		t.Fatal(err)
	}
	if err := w.store.PutStatus("a", &v1.PodStatus{Phase: v1.PodSucceeded}); err != nil {
		t.Fatal(err)
	}
	w.restart(t)
	if err := w.store.PutStatus("a", &v1.PodStatus{}); err != nil { // the row is lost
		t.Fatal(err)
	}
	if err := w.store.RewriteRows(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.restart(t)
	if all, err := w.store.Statuses(t.Context()); err != nil || all["a"] == nil || all["a"].Phase != v1.PodSucceeded {
		t.Error(all, err)
	}
}
