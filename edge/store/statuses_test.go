package store

import (
	"database/sql"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestStoredStatuses checks that StoreStatuses returns after it has written the statuses of existing pods. Older statuses that are still
// pending do not replace them.
func TestStoredStatuses(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "islet.db"))
	must(t, s.UpdatePods(t.Context(), []Pod{pod("a", "web")}, nil))
	must(t, s.PutStatus("a", &v1.PodStatus{Phase: v1.PodRunning}))
	ended := &v1.PodStatus{Phase: v1.PodSucceeded}
	must(t, s.StoreStatuses(t.Context(), map[types.UID]*v1.PodStatus{"a": ended, "gone": ended}))

	other, err := sql.Open("sqlite", s.path) // opens the file as the next agent does after kill -9
	must(t, err)
	defer other.Close()
	var data []byte
	must(t, other.QueryRow("SELECT status FROM statuses").Scan(&data))
	found := &v1.PodStatus{}
	must(t, found.Unmarshal(data))
	list, err := reopen(t, s).Statuses(t.Context())
	must(t, err)
	if found.Phase != v1.PodSucceeded || len(list) != 1 || list["a"].Phase != v1.PodSucceeded {
		t.Errorf("in the file %s, opened again %v", found.Phase, list)
	}
}
