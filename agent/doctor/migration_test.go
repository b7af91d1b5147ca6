package doctor

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMigrate checks the flags of islet doctor --migrate. The contents of reports are tested in package migrate.
func TestMigrate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	for _, c := range []struct {
		args []string
		code int
		json bool
	}{
		{args: []string{"--migrate"}},
		{args: []string{"--migrate", "-o", "json", "--write=" + dir}, json: true},
		{args: []string{"--output=json", "--migrate"}, json: true},
		{args: []string{"--migrate", "--v=2"}, code: 1},
		{args: []string{"--write=" + dir}, code: 1},
		{args: []string{"--migrate", "--write=/dev/null/x"}, code: 1},
	} {
		var out, errs strings.Builder
		if code := Main(t.Context(), c.args, rooms(), &out, &errs); code != c.code || (code != 0) != (errs.Len() > 0) {
			t.Errorf("%q: %d %s", c.args, code, errs.String())
		}
		var report struct{ Found, Steps []any }
		if err := json.Unmarshal([]byte(out.String()), &report); c.code == 0 && (err == nil) != c.json {
			t.Errorf("%q: %v: %s", c.args, err, out.String())
		}
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
}

// TestIsRoots checks the owner of a process.
func TestIsRoots(t *testing.T) {
	host := os.DirFS("/")
	if got := isRoots(host, os.Getpid()); got != (os.Geteuid() == 0) || isRoots(host, 1<<30) {
		t.Errorf("this process: %v", got)
	}
}
