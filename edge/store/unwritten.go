package store

import (
	"context"
	"strings"
	"time"
)

// maxRetryPause is the maximum time between two attempts to write rows that could not be written. The first pause is flushEvery.
const maxRetryPause = time.Minute

// A rowChange writes or removes one row. A later change with the same key replaces it. The function change must not depend on a context,
// because it may be called after the end of the caller.
type rowChange struct {
	key    string // by keyOfRow
	change func(tx *transaction) error
}

// unwritten contains the changes of rows that could not be written. Only the writer uses it. It has at most one change for each row.
type unwritten struct {
	rows  []rowChange   // in the order of the changes
	pause time.Duration // before the last attempt
}

// keyOfRow returns the key of a row, which is identified by its table and key columns.
func keyOfRow(row ...string) string { return string(rowIdentity(row)) }

// commitRows is commit for rows whose owner uses the new value even if the write fails, such as a Secret that the API server has sent.
// After a failure, the writer repeats the changes until they succeed, or until a later change of the same row replaces them. If ctx ends
// before the writer has received the changes, they are not repeated.
func (s *Store) commitRows(ctx context.Context, rows ...rowChange) error {
	return s.send(ctx, writeOf(rows...))
}

func writeOf(rows ...rowChange) write {
	return write{change: func(tx *transaction) error { return changeRows(tx, rows) }, rows: rows}
}

func changeRows(tx *transaction, rows []rowChange) error {
	for _, r := range rows {
		if err := r.change(tx); err != nil {
			return err
		}
	}
	return nil
}

// record records the result of a write. A change also replaces the changes of rows whose keys begin with its key.
func (u *unwritten) record(rows []rowChange, err error) {
	for i := range rows {
		var kept []rowChange
		for _, o := range u.rows {
			if rest, same := strings.CutPrefix(o.key, rows[i].key); !same || rest != "" && rest[0] != 0 {
				kept = append(kept, o)
			}
		}
		u.rows = kept
	}
	if err != nil {
		u.rows = append(u.rows, rows...)
	}
}

// retryRows writes the rows that could not be written. It returns the time until the next attempt, or 0 if no rows are left.
func (s *Store) retryRows() time.Duration {
	u := &s.unwritten
	all := u.rows
	if len(all) > 0 {
		s.writeAgain(all)
	}
	if len(u.rows) == 0 {
		*u = unwritten{}
		return 0
	}
	u.pause = min(max(2*u.pause, flushEvery), maxRetryPause)
	return u.pause
}

// writeAgain writes rows in one transaction. If this transaction fails, it writes each row in its own transaction. It makes no further
// attempt after an error of the disk, because each attempt could take as long as the timeout of the disk, and the writer would write
// nothing else during that time.
func (s *Store) writeAgain(all []rowChange) {
	u, w := &s.unwritten, writeOf(all...)
	u.rows = nil
	err := s.transact(syncedMode, w)
	if err != nil && s.repairDatabase(err) {
		err = s.transact(syncedMode, w)
	}
	frozen := isFrozen(err)
	for i := 0; err != nil && i < len(all); i++ {
		if frozen {
			u.rows = append(u.rows, all[i:]...)
			break
		}
		if err := s.transact(syncedMode, writeOf(all[i])); err != nil {
			u.rows, frozen = append(u.rows, all[i]), isFrozen(err)
		}
	}
	if n := len(all) - len(u.rows); n > 0 {
		s.updateMirror()
		s.log.Info("rows that could not be stored earlier are stored now", "rows", n, "missing", len(u.rows))
	}
}
