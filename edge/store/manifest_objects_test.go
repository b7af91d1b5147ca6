package store

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func localRow(source, kind, name, data string) Local {
	return Local{LocalKey: LocalKey{source, kind, "default", name}, Origin: "/etc/islet/" + name + ".yaml", Data: []byte(data)}
}

func TestLocals(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "islet.db"))
	a, b, other := localRow("file", "ConfigMap", "a", "1"), localRow("file", "Secret", "a", "2"), localRow("local", "Secret", "a", "3")
	must(t, s.UpdateLocals(t.Context(), []Local{a, b, other}, nil))
	b.Gone, b.Data = true, []byte("4")
	must(t, s.UpdateLocals(t.Context(), []Local{b}, []LocalKey{a.LocalKey}))
	s = reopen(t, s)
	list, err := s.Locals(t.Context())
	if diff := cmp.Diff([]Local{b, other}, list); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

// TestLocalsAreBoundToTheirRow checks that an encrypted object is unreadable after it was moved to another row. Otherwise it could be given
// to another pod.
func TestLocalsAreBoundToTheirRow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "islet.db")
	s := open(t, path)
	must(t, s.UpdateLocals(t.Context(), []Local{localRow("file", "Secret", "a", hush)}, nil))
	must(t, s.Close())
	execute(t, path, "UPDATE local SET source = 'http'")
	s, log := openLogged(t, path)
	if list, err := s.Locals(t.Context()); err != nil || len(list) != 0 || !strings.Contains(log.String(), "rows=1") {
		t.Error(list, err, log)
	}
}
