package store

import (
	"database/sql"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// This statement adds the changes of a newer islet to a database.
const laterTable = "CREATE TABLE later (uid TEXT PRIMARY KEY, x BLOB) WITHOUT ROWID; INSERT INTO later VALUES ('uid-1', x'01'); PRAGMA user_version = 99;"

// TestBackAndForth checks that an older islet can open and change the database of a newer version. The newer version then still finds the
// rows in all tables.
func TestBackAndForth(t *testing.T) {
	path := filepath.Join(t.TempDir(), "islet.db")
	filled(t, path, 20, true)
	execute(t, path, laterTable)
	for range 2 {
		s := open(t, path)
		if aside, yes := s.Rebuilt(); yes {
			t.Fatal("set aside:", aside)
		}
		works(t, s)
		must(t, s.SetMeta(t.Context(), "by", "the older one"))
		must(t, s.Close())
	}
	db, err := sql.Open("sqlite", connectionStrings(path)())
	must(t, err)
	defer db.Close()
	var version, rows int
	var by string
	must(t, db.QueryRow("PRAGMA user_version").Scan(&version))
	must(t, db.QueryRow("SELECT count(*) FROM later").Scan(&rows))
	must(t, db.QueryRow("SELECT value FROM meta WHERE key = 'by'").Scan(&by))
	if version != 99 || rows != 1 || by != "the older one" {
		t.Errorf("version %d, %d rows of its own table, written by %q", version, rows, by)
	}
}

// TestNewerIsLeftAlone checks that Open returns an error for a database that this version of islet cannot use. It does not modify the
// database.
func TestNewerIsLeftAlone(t *testing.T) {
	for name, change := range map[string]string{
		"no way back":        laterTable + "INSERT OR REPLACE INTO meta (key, value) VALUES ('schema.readBy', '98')",
		"nothing is said":    laterTable + "DELETE FROM meta WHERE key = 'schema.readBy'",
		"nonsense is said":   laterTable + "INSERT OR REPLACE INTO meta (key, value) VALUES ('schema.readBy', 'x')",
		"a table is another": laterTable + "DROP TABLE leases; CREATE TABLE leases (other TEXT)",
		"a table is gone":    laterTable + "DROP TABLE meta",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "islet.db")
			filled(t, path, 20, true)
			execute(t, path, change)
			before, err := os.ReadFile(path)
			must(t, err)
			s, err := Open(t.Context(), path, slog.New(slog.DiscardHandler))
			if err == nil {
				s.Close()
				t.Fatal("it was opened")
			}
			if !strings.Contains(err.Error(), "newer islet") || !strings.Contains(err.Error(), "its version is 99") ||
				!strings.Contains(err.Error(), path) {
				t.Error("the error does not say why:", err)
			}
			if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
				t.Error("it was changed", err)
			}
			if aside, _ := filepath.Glob(path + ".*-*"); len(aside) > 0 {
				t.Error("set aside:", aside)
			}
		})
	}
}

// TestMigrationsAdd checks that migrations after version readBy only add tables and indexes. They do not change existing ones.
func TestMigrationsAdd(t *testing.T) {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	must(t, err)
	if readBy < 1 || readBy > len(files) {
		t.Fatalf("readBy is %d of %d", readBy, len(files))
	}
	at := func(version int) map[string]string {
		db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), fmt.Sprint(version)))
		must(t, err)
		defer db.Close()
		must(t, migrateAll(t.Context(), db, files[:version], 0))
		found, err := readSchema(t.Context(), db)
		must(t, err)
		return found
	}
	now := at(len(files))
	for name, text := range at(readBy) {
		if now[name] != text {
			t.Errorf("a migration after version %d changes %s: raise readBy, or add a table", readBy, name)
		}
	}
}
