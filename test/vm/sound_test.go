package vm

import (
	"database/sql"
	"encoding/base64"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
	_ "modernc.org/sqlite"
)

// sound checks that a node with five pods has lost, damaged and leaked nothing.
func sound(v *VM) {
	v.t.Helper()
	v.Run("islet images import /payload/files/bulk.tar") // succeeds at once if the image is complete
	if out, code := v.Try(layers); code != 0 {
		v.t.Errorf("files of images differ:\n%s", out)
	}
	if out := v.Run("ls /var/lib/islet | grep corrupt | cat"); out != "" {
		v.t.Errorf("the database was corrupt: %s", out)
	}
	if out := v.Run("ls /sys/class/net | grep -c ^isl; ls /run/islet/ns | wc -l; ls -d /sys/fs/cgroup/kubepods/pod* | wc -l"); out != "6\n5\n5\n" {
		v.t.Errorf("the numbers of interfaces, network namespaces and cgroups are %q", out)
	}
	if out := v.Run("dmesg | grep -i 'EXT4-fs.*error' | cat; journalctl -b -u islet --no-pager | grep level=ERROR | cat"); out != "" {
		v.t.Errorf("errors are logged:\n%s", out)
	}
	used := strings.Fields(v.Run(`islet pods -o json | awk -F '"' '$2=="podIP" {print $4}'`))
	if len(used) != 5 {
		v.t.Errorf("addresses of pods: %q", used)
	}

	v.Run("systemctl stop islet")
	dir := v.t.TempDir()
	v.fetch(dir, "/var/lib/islet/islet.db-wal")
	leases(v.t, v.fetch(dir, "/var/lib/islet/islet.db"), used)
	for _, name := range []string{"meta.db", "overlayfs/metadata.db"} {
		consistent(v.t, v.fetch(dir, "/var/lib/islet/containerd/"+name))
	}
	v.Run("systemctl start islet")
	waitForPods(v, 5)
}

// layers is a script that compares the files of unpacked image layers with the originals.
const layers = `
for d in /var/lib/islet/containerd/overlayfs/snapshots/*/fs; do
	case $(ls $d) in
	*bulk*) (cd $d && sha256sum -c --quiet /payload/files/bulk.sums) || bad=1 ;;
	*podtool*) cmp $d/podtool /payload/podtool || bad=1 ;;
	esac
done
[ -z "$bad" ]`

// fetch copies a file from the machine. A missing file is not an error.
func (v *VM) fetch(dir, path string) string {
	v.t.Helper()
	to := filepath.Join(dir, filepath.Base(path))
	out := v.Run("if [ -e " + path + " ]; then base64 -w0 " + path + "; else echo -; fi")
	if strings.TrimSpace(out) == "-" {
		return to
	}
	b, err := base64.StdEncoding.DecodeString(out)
	if err == nil {
		err = os.WriteFile(to, b, 0o600)
	}
	if err != nil {
		v.t.Fatal(err)
	}
	return to
}

// leases checks that the store is intact, that exactly the running pods have addresses, and that exactly one volume is stored.
func leases(t testing.TB, path string, used []string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var verdict string
	if err := db.QueryRow("PRAGMA integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
		t.Errorf("the store: %q, %v", verdict, err)
	}
	rows, err := db.Query("SELECT addr FROM leases")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	left := map[string]bool{}
	for rows.Next() {
		var b []byte
		if err := rows.Scan(&b); err != nil {
			t.Fatal(err)
		}
		a, _ := netip.AddrFromSlice(b)
		left[a.String()] = true
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	for _, a := range used {
		if !left[a] {
			t.Errorf("address %s has no lease or belongs to two pods", a)
		}
		delete(left, a)
	}
	if len(left) > 0 {
		t.Errorf("leaked addresses: %v", left)
	}
	volumes := 0
	if err := db.QueryRow("SELECT count(*) FROM volumes").Scan(&volumes); err != nil || volumes != 1 {
		t.Errorf("the store contains %d volumes, not one (%v)", volumes, err)
	}
}

// consistent checks every page of a bolt database.
func consistent(t testing.TB, path string) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatalf("%s: %v", filepath.Base(path), err)
	}
	defer db.Close()
	db.View(func(tx *bolt.Tx) error {
		for err := range tx.Check() {
			t.Errorf("%s: %v", filepath.Base(path), err)
		}
		return nil
	})
}
