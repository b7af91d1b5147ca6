package store

import (
	"context"
	"database/sql"
	"time"
)

// A write is a change that a caller passes to the writer. The function change may be called more than once. It must therefore overwrite the
// results of an earlier call and not add to them.
type write struct {
	change func(tx *transaction) error
	rows   []rowChange // rows to write later if the change fails; see commitRows
	done   chan<- error

	coalesced bool // it need not survive a power cut; see commitCoalesced
}

// commit passes a change to the writer and waits until the change is on the disk. After the writer has received the change, commit waits
// even if ctx ends, because the caller must know the result.
func (s *Store) commit(ctx context.Context, do func(tx *transaction) error) error {
	return s.send(ctx, write{change: do})
}

// commitCoalesced is commit for a change that survives the end of the process, but not a power cut before the next durable write that
// changes a row. The order of the writes stays, so that no later write survives without it.
func (s *Store) commitCoalesced(ctx context.Context, do func(tx *transaction) error) error {
	return s.send(ctx, write{change: do, coalesced: true})
}

// send passes a write to the writer and returns its result. If ctx has already ended, it returns an error and nothing is written.
func (s *Store) send(ctx context.Context, w write) error {
	if err := ctx.Err(); err != nil { // the select below would choose at random
		return err
	}
	done := make(chan error, 1)
	w.done = done
	select {
	case s.writes <- w:
		return s.explainError(<-done)
	case <-ctx.Done():
		return ctx.Err()
	case <-s.stop:
		return ErrClosed
	}
}

// runWriter is the loop of the writer. It owns the connection for writing and ends when the store is closed.
func (s *Store) runWriter() {
	defer close(s.done)
	var flush, retry <-chan time.Time
	for {
		select {
		case w := <-s.writes:
			s.commitGroup(w)
			if retry == nil && len(s.unwritten.rows) > 0 {
				retry = time.After(flushEvery)
			}
		case r := <-s.repairs:
			r.done <- s.repairDatabase(r.why) || time.Since(s.lastRepair) < repairEvery
		case <-s.dirty:
			if flush == nil {
				flush = time.After(flushEvery)
			}
		case <-flush:
			flush = nil
			if !s.flush() {
				flush = time.After(flushEvery)
			}
			s.restoreFiles(false)
		case <-retry:
			retry = nil
			if pause := s.retryRows(); pause > 0 {
				retry = time.After(pause)
			}
			s.restoreFiles(false)
		case <-s.stop:
			s.flush()
			s.retryRows()
			s.restoreFiles(true)
			return
		}
	}
}

// commitGroup commits a change and all waiting changes in one transaction, and sends the results. If this transaction fails, each change is
// committed in its own transaction, so that one change cannot make the others fail.
func (s *Store) commitGroup(first write) {
	list := []write{first}
	for more := true; more; {
		select {
		case w := <-s.writes:
			list = append(list, w)
		default:
			more = false
		}
	}
	class := classOf(list...)
	err := s.transact(class, list...)
	if err != nil && s.repairDatabase(err) {
		err = s.transact(class, list...)
	}
	results := make([]error, len(list))
	for i, w := range list {
		results[i] = err
		if err != nil && len(list) > 1 {
			results[i] = s.transact(classOf(w), w)
		}
	}
	s.updateMirror()      // before restoreFiles, which may need the mirror
	s.restoreFiles(false) // before the results are sent, because a successful change must survive kill -9
	for i, w := range list {
		s.unwritten.record(w.rows, results[i])
		w.done <- results[i]
	}
}

// Values of PRAGMA synchronous. They determine whether a commit waits for the disk.
const (
	syncedMode    = "FULL"
	coalescedMode = "NORMAL"
)

// classOf returns the mode of a transaction with these writes.
func classOf(list ...write) string {
	for _, w := range list {
		if !w.coalesced {
			return syncedMode
		}
	}
	return coalescedMode
}

func (s *Store) transact(class string, list ...write) error {
	if err := s.setSynchronous(class); err != nil {
		return err
	}
	err := s.runTransaction(list)
	if err != nil {
		s.pullCache.clear() // it is not certain that no row has changed
	}
	return err
}

// setSynchronous sets whether commits wait for the disk. A new connection has syncedMode. After an error, the mode is not known, and the
// next call sets it.
func (s *Store) setSynchronous(class string) error {
	if s.writer.synchronous == class {
		return nil
	}
	s.writer.synchronous = ""
	if _, err := s.db.Exec("PRAGMA synchronous = " + class); err != nil {
		return err
	}
	s.writer.synchronous = class
	return nil
}

// query calls start once, and scan for each row. If the database was replaced during the query, the query is repeated from the beginning.
// start must therefore drop all rows that scan has collected.
func (s *Store) query(ctx context.Context, start func(), scan func(*sql.Rows) error, query string, args ...any) error {
	err := s.queryOnce(ctx, start, scan, query, args...)
	if err != nil && s.requestRepair(ctx, err) {
		err = s.queryOnce(ctx, start, scan, query, args...)
	}
	return s.explainError(err)
}

func (s *Store) queryOnce(ctx context.Context, start func(), scan func(*sql.Rows) error, query string, args ...any) error {
	s.dbMu.RLock()
	defer s.dbMu.RUnlock()
	start()
	rows, err := s.readDB.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
