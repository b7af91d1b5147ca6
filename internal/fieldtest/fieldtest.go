package fieldtest

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// A Row describes the node's support of one field: the field's JSON name, a verdict, and a note.
type Row [3]string

// Name returns the field's JSON name.
func (r Row) Name() string { return r[0] }

// Verdict returns the node's support of the field, as a word.
func (r Row) Verdict() string { return r[1] }

// Note returns a remark on the field, or "".
func (r Row) Note() string { return r[2] }

// A Table has a row for each field of a type.
type Table struct {
	Type  reflect.Type
	Title string
	Rows  []Row
}

// Check fails the test unless each table has a row for every field of its type, in the same order. The file must
// consist of the text head and the tables. If update is true, Check writes this file.
func Check(t *testing.T, file, head string, tables []Table, update bool) {
	t.Helper()
	var page strings.Builder
	page.WriteString(head)
	for _, table := range tables {
		var have []string
		fmt.Fprintf(&page, "\n## %s\n\n| Field | | |\n| --- | --- | --- |\n", table.Title)
		for _, r := range table.Rows {
			have = append(have, r.Name())
			fmt.Fprintf(&page, "| %s | %s | %s |\n", r.Name(), r.Verdict(), r.Note())
		}
		if want := Names(table.Type); !slices.Equal(have, want) {
			t.Errorf("%s: rows %v\nwant %v", table.Type.Name(), have, want)
		}
	}
	if update {
		if err := os.WriteFile(file, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(file); err != nil || string(have) != page.String() {
		t.Errorf("docs/%s is stale (%v): run this test with -update", filepath.Base(file), err)
	}
}

// Name returns the JSON name of a field. It is empty for an embedded struct that is inlined.
func Name(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// Names returns the JSON names of a type's fields, including the fields of inlined structs. It
// omits the fields that an ephemeral container shares with a Container.
func Names(t reflect.Type) (names []string) {
	for i := range t.NumField() {
		switch f := t.Field(i); {
		case Name(f) != "":
			names = append(names, Name(f))
		case f.Type != reflect.TypeFor[v1.EphemeralContainerCommon]():
			names = append(names, Names(f.Type)...)
		}
	}
	return names
}
