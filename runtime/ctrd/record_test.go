package ctrd

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// TestTornRecord checks a record that is truncated at an arbitrary byte. It is read without its last change and can be changed again.
func TestTornRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record")
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if err := createRecord(path, containerRecord{ID: "a", Config: []byte("config"), CreatedAt: at}); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	first := int(st.Size())
	if err := appendRecord(path, progress{StartedAt: at.Add(1), FinishedAt: at.Add(2), ExitCode: 3}, true); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(whole) + 1 {
		if err := os.WriteFile(path, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		var got containerRecord
		err := readRecord(path, &got)
		switch {
		case n < first && err == nil:
			t.Fatalf("read a record of %d of %d bytes", n, first)
		case n < first:
			continue
		case err != nil:
			t.Fatalf("%d bytes: %v", n, err)
		case got.ID != "a" || string(got.Config) != "config" || (got.ExitCode == 3) != (n == len(whole)):
			t.Fatalf("%d bytes: %+v", n, got)
		}
		if err := appendRecord(path, progress{Reason: "again"}, false); err != nil {
			t.Fatal(err)
		}
		got = containerRecord{}
		if err := readRecord(path, &got); err != nil || got.Reason != "again" || got.ID != "a" {
			t.Fatalf("%d bytes, changed again: %+v, %v", n, got, err)
		}
	}
}

// TestRepeatedChanges checks a record that changes very often. It does not grow without bound, and its last values are read. Fields of a
// later version are kept.
func TestRepeatedChanges(t *testing.T) {
	r := &Runtime{log: slog.New(slog.DiscardHandler)}
	for _, configSize := range []int{3 << 10, 300 << 10} {
		path := filepath.Join(t.TempDir(), "record")
		at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		user := &specs.User{UID: 7, AdditionalGids: []uint32{8}}
		config := bytes.Repeat([]byte("c"), configSize)
		if err := createRecord(path, containerRecord{Format: plainFormat, ID: "a", Config: config, CreatedAt: at, User: user}); err != nil {
			t.Fatal(err)
		}
		if err := appendRecord(path, map[string]any{"startedAt": at.Add(1), "later": map[string]int{"x": 1}}, false); err != nil {
			t.Fatal(err)
		}
		most := int64(0)
		for i := range 80 {
			config[0] = byte(i)
			if err := r.changeRecord(path, map[string][]byte{"config": config}); err != nil {
				t.Fatal(err)
			}
			st, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			most = max(most, st.Size())
		}
		if most > int64(maxChanges+12*configSize) {
			t.Errorf("a record with a configuration of %d bytes had %d bytes", configSize, most)
		}
		if err := appendRecord(path, progress{FinishedAt: at.Add(2), ExitCode: 3}, true); err != nil {
			t.Fatal(err)
		}
		var got struct {
			containerRecord
			Later map[string]int `json:"later"`
		}
		err := readRecord(path, &got)
		if err != nil || got.ID != "a" || !got.CreatedAt.Equal(at) || !got.StartedAt.Equal(at.Add(1)) || got.ExitCode != 3 || got.User.UID != 7 ||
			len(got.User.AdditionalGids) != 1 || !bytes.Equal(got.Config, config) || got.Later["x"] != 1 {
			t.Errorf("read %.300v, %v", got, err)
		}
		if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
			t.Errorf("left %v, %v", entries, err)
		}
	}
}

// TestRecordFormats checks that records of older versions can be read. Unknown fields are ignored. A newer format is an error.
func TestRecordFormats(t *testing.T) {
	for text, want := range map[string]error{
		`{"id":"a","config":"Yw==","shim":"1"}`:                            nil,
		`{"format":1,"id":"a","config":"Yw==","shim":"1","later":{"x":1}}`: nil,
		`{"format":2,"id":"a","config":"Yw==","shim":"1","tasks":true}`:    nil,
		`{"format":3,"id":["a"]}`:                                          errNewer,
	} {
		path := filepath.Join(t.TempDir(), "record")
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		var got sandboxRecord
		if err := readRecord(path, &got); !errors.Is(err, want) {
			t.Errorf("%s: %v", text, err)
		} else if err == nil && (got.ID != "a" || string(got.Config) != "c" || got.Shim != "1") {
			t.Errorf("%s: %+v", text, got)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != text+"\n" {
			t.Errorf("%s became %s", text, b)
		}
	}
}
