package eventtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// wiring is the name of package agent. No test can emit the only event of this package.
const wiring = "agent"

var called = regexp.MustCompile(`eventtest\.Main\(m, "(\w+)"\)`)

// TestRooms checks that every package that docs/events.md names has a test that calls Main with the name of the package.
func TestRooms(t *testing.T) {
	root := filepath.Join("..", "..")
	rows, err := readRows(filepath.Join(root, "docs", "events.md"))
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{wiring: true}
	for _, part := range []string{"agent", "edge", "runtime", "net"} {
		err := filepath.WalkDir(filepath.Join(root, part), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, m := range called.FindAllStringSubmatch(string(text), -1) {
				if room := filepath.Base(filepath.Dir(path)); room != m[1] {
					t.Errorf("%s says that it is %q", path, m[1])
				}
				has[m[1]] = true
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range rows {
		if !has[r.room] {
			t.Errorf("no test of %s calls Main: nothing compares its event %s with the page", r.room, r.reason)
		}
	}
}
