package node

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
	_ "modernc.org/sqlite"

	"github.com/islet-edge/islet/test/machine"
)

// inventory checks the databases of a stopped node without pods. The metadata of containerd must have no container, sandbox, lease or
// writable snapshot. The store must have no pod and no address.
func inventory(t *testing.T, m *machine.Machine) {
	t.Helper()
	var meta string
	filepath.WalkDir(m.Disk+"/state", func(p string, d os.DirEntry, err error) error {
		if err == nil && d.Name() == "meta.db" {
			meta = p
		}
		return nil
	})
	if meta == "" {
		t.Fatal("containerd's metadata is missing in the state directory")
	}
	db, err := bolt.Open(meta, 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.View(func(tx *bolt.Tx) error {
		ns := tx.Bucket([]byte("v1")).Bucket([]byte("k8s.io"))
		if ns == nil {
			t.Fatal("containerd's metadata has no namespace k8s.io")
		}
		for _, kind := range []string{"containers", "sandboxes", "leases"} {
			for _, k := range keys(ns.Bucket([]byte(kind))) {
				t.Errorf("%s: %s is left in containerd's metadata", kind, k)
			}
		}
		snapshotters := ns.Bucket([]byte("snapshots"))
		for _, name := range keys(snapshotters) {
			for _, k := range keys(snapshotters.Bucket([]byte(name))) {
				if !strings.HasPrefix(k, "sha256:") {
					t.Errorf("%s snapshot %s is left", name, k)
				}
			}
		}
		return nil
	})
	store, err := sql.Open("sqlite", "file:"+m.Disk+"/state/islet.db?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for _, table := range []string{"pods", "leases", "admissions", "statuses"} {
		var n int
		if err := store.QueryRow("SELECT count(*) FROM " + table).Scan(&n); err != nil {
			t.Errorf("count %s: %v", table, err)
		}
		if n != 0 {
			t.Errorf("%d rows are left in %s", n, table)
		}
	}
}

func keys(b *bolt.Bucket) []string {
	var list []string
	if b != nil {
		b.ForEach(func(k, _ []byte) error { list = append(list, string(k)); return nil })
	}
	return list
}
