package store

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"time"
)

// maxMirrored is the maximum size of a table in the mirror, in bytes. Real tables have a few kilobytes.
const maxMirrored = 4 << 20

// A mirror contains the committed rows of the small tables. After the replacement of a damaged database during use, these tables get
// exactly these rows: lost rows return, and old copies of rows do not. Most owners of these rows do not have all of them in memory. Only
// the writer uses a mirror. The zero value is ready for use.
type mirror struct {
	tables map[string][][]any // the rows of each table
	sizes  map[string]int     // in bytes, at least
	stale  map[string]bool    // tables that have changed after they were read, or could not be read

	retried time.Time // time of the last read of the stale tables that had not changed
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

// read reads the rows of the given tables, or of all tables, after they have changed. A table that cannot be read stays stale. The others
// are still read, unless ctx has ended.
func (m *mirror) read(ctx context.Context, db *sql.DB, tables ...string) (err error) {
	if m.tables == nil {
		m.tables, m.sizes, m.stale = map[string][][]any{}, map[string]int{}, map[string]bool{}
	}
	shapes := mirroredShapes(tables...)
	for _, s := range shapes {
		m.stale[s.table] = true
	}
	for _, s := range shapes {
		rows, size, failed := readRows(ctx, db, s, rowSet{})
		if failed == nil {
			m.tables[s.table], m.sizes[s.table] = rows, size
			delete(m.stale, s.table)
		}
		err = joinReadErrors(err, failed)
		if failed != nil && ctx.Err() != nil {
			break
		}
	}
	return err
}

// joinReadErrors joins the errors of two reads. isCorrupt reports the first error of SQLite, so an error that a repair solves comes first.
func joinReadErrors(a, b error) error {
	if b != nil && isCorrupt(b) {
		a, b = b, a
	}
	return errors.Join(a, b)
}

// update reads the changed rows of a table, or all rows of a stale table.
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

// updateMirror reads the rows of the mirror that have changed since its last call. It also reads the other tables that are stale, at most
// once per repairEvery, because each attempt could take as long as the timeout of the disk. If the database is damaged, it repairs the
// database. Only the writer may call it.
func (s *Store) updateMirror() {
	m := &s.mirror
	retry := len(m.stale) > 0 && time.Since(m.retried) >= repairEvery
	if retry {
		m.retried = time.Now()
	}
	var err error
	for _, shape := range mirroredShapes() {
		changed := s.writer.changed[shape.table]
		if len(changed) > 0 || retry && m.stale[shape.table] {
			err = joinReadErrors(err, m.update(context.Background(), s.db, shape, changed))
		}
	}
	clear(s.writer.changed)
	if err != nil && !s.repairDatabase(err) {
		s.logUnreadable(err)
	}
}

// readMirror reads all tables of the mirror. It does not repair the database, because it is a part of the repair. Only the writer may call
// it, and start before the writer.
func (s *Store) readMirror(ctx context.Context) {
	if err := s.mirror.read(ctx, s.db); err != nil {
		s.logUnreadable(err)
	}
}

func (s *Store) logUnreadable(err error) {
	s.log.Warn("a part of the database cannot be read", "database", s.path, "error", s.explainError(err))
}
