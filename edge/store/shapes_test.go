package store

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestShapes compares the shapes with the schema. Each table must have a shape that lists its columns and their types in the stored order.
// No row may match two shapes, so the order of the shapes does not matter.
func TestShapes(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "islet.db"))
	columns, types := storedColumns(t, s)
	list := listShapes()
	for _, a := range list {
		if columns[a.table] != a.columns || types[a.table] != a.types {
			t.Errorf("table %s has the columns %s (%s), its shape %s (%s)", a.table, columns[a.table], types[a.table], a.columns, a.types)
		}
		delete(columns, a.table)
	}
	for table := range columns {
		t.Errorf("table %s has no shape", table)
	}
	row := func(types, first string) (v []any) {
		for _, c := range types {
			v = append(v, map[rune]any{'t': first, 'i': int64(1), 'b': []byte("1234")}[c])
		}
		return v
	}
	for _, a := range list {
		for _, first := range []string{"", "name", "sha256:0"} {
			v := row(a.types, first)
			if n := len(slices.DeleteFunc(slices.Clone(list), func(b rowShape) bool { return !b.matchesRow(v) })); n > 1 {
				t.Errorf("%d shapes match the row %q of %s", n, v, a.table)
			}
		}
	}
}

// storedColumns returns the columns of each table, and one letter for the type of each column. They are in the order in which SQLite stores
// a row of a table WITHOUT ROWID: the primary key is first.
func storedColumns(t *testing.T, s *Store) (columns, types map[string]string) {
	t.Helper()
	rows, err := s.readDB.QueryContext(t.Context(), `
		SELECT m.name, c.name, c.type FROM sqlite_schema m, pragma_table_info(m.name) c
		WHERE m.type = 'table' ORDER BY m.name, c.pk = 0, c.pk, c.cid`)
	must(t, err)
	defer rows.Close()
	columns, types = map[string]string{}, map[string]string{}
	for rows.Next() {
		var table, column, kind string
		must(t, rows.Scan(&table, &column, &kind))
		columns[table] = strings.TrimPrefix(columns[table]+", "+column, ", ")
		types[table] += strings.ToLower(kind[:1])
	}
	must(t, rows.Err())
	return columns, types
}
