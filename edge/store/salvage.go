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

// pageSize is the page size of all databases that islet creates.
const pageSize = 1024

// maxSalvaged is the maximum size in bytes up to which a broken database is read. Real databases are far smaller.
const maxSalvaged = 256 << 20

// A rowShape identifies the rows of a table by the types of their columns. The columns are in the stored order: the key columns come first.
// The columns of a table are the same in all versions of the schema. No row matches two shapes, so the order of the shapes does not matter.
// TestShapes compares the shapes with the schema.
type rowShape struct {
	table, columns string
	types          string // t means text, i integer, b blob
	repair         tableRepair
	check          func(v []any) bool
}

func listShapes() []rowShape {
	anyRow := func([]any) bool { return true }
	named := func(v []any) bool { return v[0] != "" }
	digest := func(v []any) bool { return strings.Contains(v[0].(string), ":") } // unlike the keys of meta, a digest contains a colon
	return []rowShape{
		{"pods", "uid, seq, source, origin, manifest, deleting, grace, again", "tittbiii", fromOwner, named},
		{"objects", "kind, namespace, name, version, gone, data", "ttttib", fromOwner, anyRow},
		{"volumes", "volume, pod, path, data", "tttb", fromMirror, anyRow},
		{"local", "source, kind, namespace, name, origin, gone, data", "tttttib", fromOwner, anyRow},
		{"pulls", "image, name, namespace, secret, uid, hash", "tttttb", fromMirror, anyRow},
		{"tokens", "uid, audience, seconds, issued, expires, token", "ttiiib", fromMirror, anyRow},
		{"certificates", "uid, volume, source, state", "ttib", fromMirror, anyRow},
		{"events", "name, seq, told, event", "tiib", notAtAll, anyRow},
		{"admissions", "uid, reason, message", "ttt", fromMirror, anyRow},
		{"evictions", "uid, grace, disrupted", "tii", fromMirror, anyRow},
		{"allocations", "uid, generation, resources", "tib", fromMirror, anyRow},
		{"devices", "uid, container, resource, count, given", "tttib", fromMirror, anyRow},
		{"claims", "uid, driver, namespace, name, state", "ttttb", fromMirror, anyRow},
		{"leases", "addr, owner", "bt", fromMirror, func(v []any) bool { n := len(v[0].([]byte)); return n == 4 || n == 16 }},
		{"statuses", "uid, status", "tb", fromOwner, anyRow},
		{"lives", "uid, lives", "ti", fromMirror, anyRow},
		{"imports", "digest, name", "tt", fromMirror, digest},
		{"meta", "key, value", "tt", fromMirror, func(v []any) bool { return !digest(v) && v[0] != "" }},
	}
}

func (s rowShape) matchesRow(v []any) bool {
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
	return s.check(v)
}

// insertion returns the statement that adds a row if there is none with the same key.
func (s *rowShape) insertion() string {
	return "INSERT OR IGNORE INTO " + s.table + " (" + s.columns + ") VALUES (?" + strings.Repeat(", ?", len(s.types)-1) + ")"
}

// salvageRows copies all readable rows of the broken database at a path to an open database. It returns the number of rows.
func salvageRows(ctx context.Context, path string, to *sql.DB) (n int, err error) {
	db, err := readFile(path)
	if err != nil {
		return 0, err
	}
	wal, err := readFile(path + "-wal")
	if err != nil {
		return 0, err
	}
	tx, err := to.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	tableShapes := listShapes()
	for row := range pages.Open(db, wal, pageSize).Rows() {
		for _, s := range tableShapes {
			if !s.matchesRow(row.Values) {
				continue
			}
			// If a row occurs twice, the second one is an old copy and is ignored.
			result, err := tx.ExecContext(ctx, s.insertion(), row.Values...)
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

// readFile reads a regular file. It returns zeros for blocks that the disk cannot read, and no data for a missing file.
func readFile(path string) ([]byte, error) {
	fi, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && !fi.Mode().IsRegular() {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if fi.Size() > maxSalvaged {
		return nil, fmt.Errorf("%s has %d bytes, more than the database of a node can have", path, fi.Size())
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
		at += n
		if err == nil {
			continue
		}
		if errors.Is(err, io.EOF) {
			return data[:at], nil
		}
		for ; at < end; at += pageSize { // reads page by page, because at least one page is unreadable
			_, _ = f.ReadAt(data[at:min(at+pageSize, end)], int64(at))
		}
		at = end
	}
	return data, nil
}
