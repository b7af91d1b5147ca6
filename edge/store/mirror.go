package store

import (
	"context"
	"database/sql"
	"slices"
)

// maxMirrored is the maximum size of a table in the mirror, in bytes. Real tables have a few kilobytes.
const maxMirrored = 4 << 20

// A mirror contains the committed rows of the small tables. After the replacement of a damaged database during use, these tables get
// exactly these rows: lost rows return, and old copies of rows do not. Most owners of these rows do not have all of them in memory. Only
// the writer uses a mirror. The zero value is ready for use.
type mirror struct {
	tables map[string][][]any // the rows of each table
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
		m.tables, m.stale = map[string][][]any{}, map[string]bool{}
	}
	shapes := mirroredShapes(tables...)
	for _, s := range shapes {
		m.stale[s.table] = true
	}
	for _, s := range shapes {
		rows, err := readRows(ctx, db, s)
		if err != nil {
			return err
		}
		m.tables[s.table] = rows
		delete(m.stale, s.table)
	}
	return nil
}

// readRows returns all rows of a table, or none if the table is larger than maxMirrored.
func readRows(ctx context.Context, db *sql.DB, s *rowShape) (list [][]any, err error) {
	rows, err := db.QueryContext(ctx, "SELECT "+s.columns+" FROM "+s.table)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	list = [][]any{}
	for size := 0; rows.Next(); {
		row, to := make([]any, len(s.types)), make([]any, len(s.types))
		for i := range row {
			to[i] = &row[i]
		}
		if err := rows.Scan(to...); err != nil {
			return nil, err
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
			return nil, nil
		}
		list = append(list, row)
	}
	return list, rows.Err()
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
	if err := putMeta(ctx, tx, emptyKey, "new"); err != nil { // until the owners have written their rows
		return err
	}
	return tx.Commit()
}

// readMirrorAfter reads the tables that changes have changed.
func (s *Store) readMirrorAfter(list []write, results []error) {
	var tables []string
	for i, w := range list {
		if results[i] == nil {
			tables = append(tables, w.tables...)
		}
	}
	tables = slices.DeleteFunc(tables, func(t string) bool { return t == noMirror })
	if len(tables) > 0 {
		s.readMirror(tables...)
	}
}

// readMirror reads tables after they have changed. If they are damaged, it repairs the database. Only the writer may call it.
func (s *Store) readMirror(tables ...string) {
	err := s.mirror.read(context.Background(), s.db, tables...)
	if err != nil && !s.repairDatabase(err) {
		s.log.Warn("a part of the database cannot be read", "database", s.path, "error", s.explainError(err))
	}
}
