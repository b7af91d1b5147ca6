package store

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
)

// maxMirrored is the maximum size of a table in the mirror, in bytes. Real tables have a few kilobytes.
const maxMirrored = 4 << 20

// A mirror contains the committed rows of the small tables. After the replacement of a damaged database during use, these tables get
// exactly these rows: lost rows return, and old copies of rows do not. Most owners of these rows do not have all of them in memory. Only
// the writer uses a mirror. The zero value is ready for use.
type mirror struct {
	tables map[string][][]any // the rows of each table
	sizes  map[string]int     // in bytes, at least
	stale  map[string]bool    // tables that have changed after they were read
}

// A tableRepair is the source of a table's rows that the replacement of a damaged database has lost.
type tableRepair int

const (
	fromMirror tableRepair = iota // the mirror
	fromOwner                     // the function that the owner of the table has passed to AddRewriter
	notAtAll                      // nothing, because the rows only report what has happened
)

// mirroredShapes returns the shapes of the given tables that are in the mirror, or of all such tables.
func mirroredShapes(tables ...string) (shapes []*rowShape) {
	all := listShapes()
	for i := range all {
		if s := &all[i]; s.repair == fromMirror && (len(tables) == 0 || slices.Contains(tables, s.table)) {
			shapes = append(shapes, s)
		}
	}
	return shapes
}

// read reads the rows of the given tables, or of all tables, after they have changed.
func (m *mirror) read(ctx context.Context, db *sql.DB, tables ...string) error {
	if m.tables == nil {
		m.tables, m.sizes, m.stale = map[string][][]any{}, map[string]int{}, map[string]bool{}
	}
	shapes := mirroredShapes(tables...)
	for _, s := range shapes {
		m.stale[s.table] = true
	}
	for _, s := range shapes {
		rows, size, err := readRows(ctx, db, s, rowSet{})
		if err != nil {
			return err
		}
		m.tables[s.table], m.sizes[s.table] = rows, size
		delete(m.stale, s.table)
	}
	return nil
}

// update reads the changed rows of a table.
func (m *mirror) update(ctx context.Context, db *sql.DB, s *rowShape, changed []rowSet) error {
	if m.stale[s.table] || m.tables[s.table] == nil || m.sizes[s.table] > maxMirrored || slices.Contains(changed, rowSet{}) {
		return m.read(ctx, db, s.table)
	}
	m.stale[s.table] = true
	columns := strings.Split(s.columns, ", ")
	for _, set := range changed {
		rows, size, err := readRows(ctx, db, s, set)
		if err != nil {
			return err
		}
		if rows == nil {
			return m.read(ctx, db, s.table)
		}
		i := slices.Index(columns, set.column)
		kept := slices.DeleteFunc(m.tables[s.table], func(row []any) bool { return set.has(row[i]) })
		m.tables[s.table] = append(kept, rows...)
		m.sizes[s.table] += size // never too small, although the removed rows are not subtracted
	}
	delete(m.stale, s.table)
	return nil
}

// readRows returns the rows of a set and their size in bytes. It returns no rows if they are larger than maxMirrored.
func readRows(ctx context.Context, db *sql.DB, s *rowShape, set rowSet) (list [][]any, size int, err error) {
	query, args := "SELECT "+s.columns+" FROM "+s.table, []any(nil)
	if set.column != "" {
		query += " WHERE " + set.column + " = ?"
		args = []any{set.value}
		if set.isBlob {
			args = []any{[]byte(set.value)}
		}
	}
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, 0, err
	}
	defer rows.Close()
	list = [][]any{}
	for rows.Next() {
		row, to := make([]any, len(s.types)), make([]any, len(s.types))
		for i := range row {
			to[i] = &row[i]
		}
		if err := rows.Scan(to...); err != nil {
			return nil, 0, err
		}
		for i, v := range row {
			switch v := v.(type) {
			case string:
				size += len(v)
			case []byte:
				size += len(v)
				if v == nil { // SQLite would write NULL
					row[i] = []byte{}
				}
			}
		}
		if size > maxMirrored {
			return nil, 0, nil
		}
		list = append(list, row)
	}
	return list, size, rows.Err()
}

// restore writes the rows to a new database that has the readable rows of the damaged one. If a table has changed after it was read, the
// readable rows of the damaged database take precedence over the rows of the mirror.
func (m *mirror) restore(ctx context.Context, db *sql.DB) error {
	if m.tables == nil {
		return nil
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, s := range mirroredShapes() {
		rows := m.tables[s.table]
		if rows == nil {
			continue
		}
		if !m.stale[s.table] {
			if _, err := tx.ExecContext(ctx, "DELETE FROM "+s.table); err != nil {
				return err
			}
		}
		q := s.insertion()
		for _, row := range rows {
			if _, err := tx.ExecContext(ctx, q, row...); err != nil {
				return err
			}
		}
	}
	if _, err := tx.ExecContext(ctx, putMetaRow, emptyKey, "new"); err != nil { // until the owners have written their rows
		return err
	}
	return tx.Commit()
}

// updateMirror reads the rows of the mirror that have changed since its last call. If the database is damaged, it repairs the database.
// Only the writer may call it.
func (s *Store) updateMirror() {
	var err error
	for table, changed := range s.writer.changed {
		for _, shape := range mirroredShapes(table) {
			err = errors.Join(err, s.mirror.update(context.Background(), s.db, shape, changed))
		}
	}
	clear(s.writer.changed)
	s.repairMirror(err)
}

// readMirror reads all tables of the mirror. If the database is damaged, it repairs the database. Only the writer may call it.
func (s *Store) readMirror() { s.repairMirror(s.mirror.read(context.Background(), s.db)) }

func (s *Store) repairMirror(err error) {
	if err != nil && !s.repairDatabase(err) {
		s.log.Warn("a part of the database cannot be read", "database", s.path, "error", s.explainError(err))
	}
}
