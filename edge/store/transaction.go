package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// maxPrepared is the maximum number of prepared statements. A pod's life has about twenty. SQLite needs 3 to 20 KiB for each.
const maxPrepared = 40

// A writer is the state of the connection for writing. It must not be used with another connection.
type writer struct {
	synchronous string // the present value of PRAGMA synchronous; empty if it is not known
	statements  statements
	changed     rowChanges // since the mirror was read
}

// A transaction is a transaction of the writer. It uses the driver's connection, because the statements of database/sql cannot be prepared
// during a transaction. It does not use the contexts of the callers, because the changes of several callers share a transaction, and the
// end of one context must not make the others fail.
type transaction struct {
	statements *statements
	changed    rowChanges
}

// statements contains the statements that the writer has used, by their text. SQLite needs several times longer to compile a statement than
// to execute it. Therefore a statement that is used again stays prepared, until close is called. The zero value is ready for use.
type statements struct {
	conn     driver.Conn
	byText   map[string]*statement
	prepared int
}

type statement struct {
	table    string      // the table whose rows it changes
	prepared driver.Stmt // nil if it is not prepared
}

// runTransaction executes the changes of the writes in one transaction. Only the writer may call it.
func (s *Store) runTransaction(list []write) error {
	conn, err := s.db.Conn(context.Background())
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer conn.Close() // returns it to db
	return conn.Raw(func(c any) error {
		t := &transaction{statements: &s.writer.statements, changed: rowChanges{}}
		if t.statements.conn != c {
			*t.statements = statements{conn: c.(driver.Conn)}
		}
		if err := t.run(list); err != nil {
			return err
		}
		if s.writer.changed == nil {
			s.writer.changed = rowChanges{}
		}
		for table, rows := range t.changed {
			for _, r := range rows {
				s.writer.changed.add(table, r)
			}
		}
		if t.changed["pulls"] != nil {
			s.pullCache.clear()
		}
		return nil
	})
}

func (t *transaction) run(list []write) error {
	tx, err := t.statements.conn.(driver.ConnBeginTx).BeginTx(context.Background(), driver.TxOptions{})
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	for _, w := range list {
		if err := w.change(t); err != nil {
			return errors.Join(err, rollback(tx))
		}
	}
	if err := tx.Commit(); err != nil { // the driver has rolled back
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// rollback rolls a transaction back. It returns no error if SQLite has already rolled the transaction back, as on a full disk.
func rollback(tx driver.Tx) error {
	if err := tx.Rollback(); err != nil && resultCode(err) == 0 {
		return fmt.Errorf("roll back: %w", err)
	}
	return nil
}

// exec executes a statement that returns no rows.
func (t *transaction) exec(query string, args ...any) error {
	return t.execOn(rowSet{}, query, args...)
}

// execOn is exec for a statement that changes only the rows of a set. Only these rows are read for the mirror.
func (t *transaction) execOn(set rowSet, query string, args ...any) error {
	_, err := t.change(set, query, args...)
	return err
}

// change executes a statement that returns no rows, and changes only the rows of a set. It returns the number of rows that were added,
// changed or removed.
func (t *transaction) change(set rowSet, query string, args ...any) (n int64, err error) {
	var table string
	err = t.statements.use(query, args, func(st *statement, s driver.Stmt, values []driver.NamedValue) error {
		result, err := s.(driver.StmtExecContext).ExecContext(context.Background(), values)
		if err != nil {
			return err
		}
		table = st.table
		n, err = result.RowsAffected()
		return err
	})
	if n > 0 {
		t.changed.add(table, set)
	}
	return n, err
}

// query returns the first value of the first row of a query. It returns false if there is no row.
func (t *transaction) query(query string, args ...any) (value any, found bool, err error) {
	err = t.statements.use(query, args, func(_ *statement, s driver.Stmt, values []driver.NamedValue) error {
		rows, err := s.(driver.StmtQueryContext).QueryContext(context.Background(), values)
		if err != nil {
			return err
		}
		row := make([]driver.Value, len(rows.Columns()))
		err = rows.Next(row)
		if found = err == nil; found {
			value = row[0]
		}
		if err == io.EOF {
			err = nil
		}
		return errors.Join(err, rows.Close())
	})
	return value, found && err == nil, err
}

// use prepares the statement with a text, unless it is prepared, and calls a function with it. From the second use on, the statement stays
// prepared.
func (s *statements) use(text string, args []any, do func(*statement, driver.Stmt, []driver.NamedValue) error) (err error) {
	values := make([]driver.NamedValue, len(args))
	for i, arg := range args {
		values[i].Ordinal = i + 1
		if values[i].Value, err = driver.DefaultParameterConverter.ConvertValue(arg); err != nil {
			return err
		}
	}
	st, used := s.byText[text]
	if !used {
		if s.byText == nil {
			s.byText = map[string]*statement{}
		}
		st = &statement{table: changedTable(text)}
		s.byText[text] = st
	}
	prepared := st.prepared
	if prepared == nil {
		if prepared, err = s.conn.(driver.ConnPrepareContext).PrepareContext(context.Background(), text); err != nil {
			return err
		}
		if used && s.prepared < maxPrepared {
			st.prepared = prepared
			s.prepared++
		} else {
			defer func() { err = errors.Join(err, prepared.Close()) }()
		}
	}
	return do(st, prepared, values)
}

// close releases the prepared statements. Otherwise SQLite would keep the file open after its connection was closed. SQLite returns the
// error of a statement's last execution again, so errors are ignored.
func (s *statements) close() {
	for _, st := range s.byText {
		if st.prepared != nil {
			_ = st.prepared.Close()
		}
	}
	*s = statements{}
}

// changedTable returns the name of the table whose rows a statement changes.
func changedTable(query string) string {
	words := strings.Fields(query)
	for i, w := range words[:len(words)-1] {
		switch w {
		case "INTO", "FROM", "UPDATE":
			return words[i+1]
		}
	}
	return ""
}

// A rowSet contains the rows of a table with a value in a column. No statement may change the column: otherwise the mirror would
// keep the rows with the old value.
type rowSet struct {
	column string // empty for all rows
	value  string
	isBlob bool
}

func textRows(column, value string) rowSet { return rowSet{column: column, value: value} }

func blobRows(column string, value []byte) rowSet {
	return rowSet{column: column, value: string(value), isBlob: true}
}

// has reports whether a value of the column belongs to a row of the set.
func (s rowSet) has(v any) bool {
	switch v := v.(type) {
	case string:
		return !s.isBlob && v == s.value
	case []byte:
		return s.isBlob && string(v) == s.value
	}
	return false
}

// maxRowSets is the maximum number of sets that are read one by one.
const maxRowSets = 16

// rowChanges contains the rows that have changed, by their table.
type rowChanges map[string][]rowSet

func (c rowChanges) add(table string, set rowSet) {
	switch list := c[table]; {
	case set.column == "" || len(list) == maxRowSets:
		c[table] = []rowSet{{}}
	case !slices.Contains(list, set) && !slices.Contains(list, rowSet{}):
		c[table] = append(list, set)
	}
}
