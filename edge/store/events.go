package store

import (
	"context"
	"database/sql"
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// An Event is an event of this node, with its count.
type Event struct {
	Event *v1.Event // the name is the key of the row
	Seq   int64     // events with a higher number have occurred later
	Told  int32     // the count that was last sent to the API server; 0 if never sent
}

// UpdateEvents durably writes events and removes others by name. It makes all changes or none.
func (s *Store) UpdateEvents(ctx context.Context, put []Event, remove []string) error {
	if len(put)+len(remove) == 0 {
		return nil
	}
	data := make([][]byte, len(put))
	for i, e := range put {
		var err error
		if data[i], err = e.Event.Marshal(); err != nil {
			return fmt.Errorf("encode event %s: %w", e.Event.Name, err)
		}
	}
	err := s.commit(ctx, func(tx *transaction) error {
		for _, name := range remove {
			if err := tx.exec("DELETE FROM events WHERE name = ?", name); err != nil {
				return err
			}
		}
		for i, e := range put {
			if err := tx.exec(`
				INSERT INTO events (name, seq, told, event) VALUES (?, ?, ?, ?)
				ON CONFLICT (name) DO UPDATE SET seq = excluded.seq, told = excluded.told, event = excluded.event
				WHERE (seq, told, event) IS NOT (excluded.seq, excluded.told, excluded.event)`,
				e.Event.Name, e.Seq, e.Told, data[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("store events: %w", err)
	}
	return nil
}

// Events returns all rows in the order of Seq. It logs and omits a row that cannot be decoded.
func (s *Store) Events(ctx context.Context) ([]Event, error) {
	var list []Event
	err := s.query(ctx, func() { list = nil }, func(rows *sql.Rows) error {
		var name string
		var data []byte
		e := Event{Event: &v1.Event{}}
		if err := rows.Scan(&name, &e.Seq, &e.Told, &data); err != nil {
			return err
		}
		if err := e.Event.Unmarshal(data); err != nil || e.Event.Name != name {
			s.log.Error("a stored event cannot be decoded and is omitted", "name", name, "error", err)
			return nil
		}
		list = append(list, e)
		return nil
	}, "SELECT name, seq, told, event FROM events ORDER BY seq")
	if err != nil {
		return nil, fmt.Errorf("read the stored events: %w", err)
	}
	return list, nil
}
