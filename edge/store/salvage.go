package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/islet-edge/islet/edge/store/pages"
)

// pageSize is that of all databases that islet made.
const pageSize = 1024

// mostSalvaged bounds what is read of a broken database: that of a node is far smaller.
const mostSalvaged = 256 << 20

// A shape tells the rows of a table from those of others: what a record of it holds, in
// the order of its columns, the key first. It is the same in all versions of the schema.
type shape struct {
	table, columns string
	types          string // t text, i integer, b blob
	is             func(v []any) bool
}

func shapes() []shape {
	all := func([]any) bool { return true }
	digest := func(v []any) bool { return strings.Contains(v[0].(string), ":") }
	return []shape{
		{"pods", "uid, seq, source, origin, manifest, deleting, grace, again", "tittbiii", func(v []any) bool { return v[0] != "" }},
		{"objects", "kind, namespace, name, version, gone, data", "ttttib", all},
		{"volumes", "volume, pod, path, data", "tttb", all},
		{"local", "source, kind, namespace, name, origin, gone, data", "tttttib", all},
		{"pulls", "image, name, namespace, secret, uid, hash", "tttttb", all},
		{"tokens", "uid, audience, seconds, issued, expires, token", "ttiiib", all},
		{"certificates", "uid, volume, source, state", "ttib", all},
		{"events", "name, seq, told, event", "tiib", all},
		{"admissions", "uid, reason, message", "ttt", all},
		{"evictions", "uid, grace, disrupted", "tii", all},
		{"allocations", "uid, generation, resources", "tib", all},
		{"devices", "uid, container, resource, count, given", "tttib", all},
		{"claims", "uid, driver, namespace, name, state", "ttttb", all},
		{"leases", "addr, owner", "bt", func(v []any) bool { n := len(v[0].([]byte)); return n == 4 || n == 16 }},
		{"statuses", "uid, status", "tb", all},
		{"lives", "uid, lives", "ti", all},
		{"imports", "digest, name", "tt", digest},
		{"meta", "key, value", "tt", func(v []any) bool { return !digest(v) && v[0] != "" }},
	}
}

func (s shape) fits(v []any) bool {
	if len(v) != len(s.types) {
		return false
	}
	for i, t := range s.types {
		ok := false
		switch v[i].(type) {
		case string:
			ok = t == 't'
		case int64:
			ok = t == 'i'
		case []byte:
			ok = t == 'b'
		}
		if !ok {
			return false
		}
	}
	return s.is(v)
}

// salvage writes all rows that can be read of a database's files to an open one, and
// gives how many those are.
func salvage(ctx context.Context, path string, to *sql.DB) (n int, err error) {
	db, err := readSome(path)
	if err != nil {
		return 0, err
	}
	wal, err := readSome(path + "-wal")
	if err != nil {
		return 0, err
	}
	tx, err := to.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	known := shapes()
	for row := range pages.Open(db, wal, pageSize).Rows() {
		for _, s := range known {
			if !s.fits(row.Values) {
				continue
			}
			// A row that is there twice is a copy that SQLite left behind: the later one counts no more.
			q := fmt.Sprintf("INSERT OR IGNORE INTO %s (%s) VALUES (?%s)", s.table, s.columns, strings.Repeat(", ?", len(s.types)-1))
			result, err := tx.ExecContext(ctx, q, row.Values...)
			if err != nil {
				return 0, fmt.Errorf("write a row of %s: %w", s.table, err)
			}
			if added, err := result.RowsAffected(); err == nil {
				n += int(added)
			}
			break
		}
	}
	return n, tx.Commit()
}

// readSome reads a regular file; what of it the disk cannot give is zeros. There may be
// no such file.
func readSome(path string) ([]byte, error) {
	fi, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && !fi.Mode().IsRegular() {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if fi.Size() > mostSalvaged {
		return nil, fmt.Errorf("%s has %d bytes, which no database of a node has", path, fi.Size())
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data := make([]byte, fi.Size())
	for at := 0; at < len(data); {
		end := min(at+64*pageSize, len(data))
		n, err := f.ReadAt(data[at:end], int64(at))
		if at += n; err == nil {
			continue
		}
		if errors.Is(err, io.EOF) {
			return data[:at], nil
		}
		for ; at < end; at += pageSize { // one by one: some sector of these is unreadable
			_, _ = f.ReadAt(data[at:min(at+pageSize, end)], int64(at))
		}
		at = end
	}
	return data, nil
}
