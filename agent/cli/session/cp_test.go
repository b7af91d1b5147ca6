package session_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/agent/cli/command"
)

// TestCopy checks that islet cp copies files to and from a container that has tar.
func TestCopy(t *testing.T) {
	n, _ := startNode(t)
	inside, here := t.TempDir(), t.TempDir()
	file := filepath.Join(here, "file")
	if err := os.WriteFile(file, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"/copied", "/"} {
		check(t, n, run(t, n, "", "cp", file, "web:"+inside+to, "-c", "nginx"), 0, "", "")
	}
	for _, name := range []string{"copied", "file"} {
		if data, err := os.ReadFile(filepath.Join(inside, name)); err != nil || string(data) != "hello" {
			t.Errorf("%s in the container: %q, %v", name, data, err)
		}
	}
	if err := os.Mkdir(filepath.Join(inside, "dir"), 0o755); err != nil {
		t.Fatal(err)
	}
	check(t, n, run(t, n, "", "cp", here, "web:"+inside+"/dir", "-c", "nginx"), 0, "", "")
	if data, err := os.ReadFile(filepath.Join(inside, "dir", filepath.Base(here), "file")); err != nil || string(data) != "hello" {
		t.Errorf("into a directory: %q, %v", data, err)
	}
	back := filepath.Join(here, "back")
	check(t, n, run(t, n, "", "cp", "web:"+inside+"/copied", back, "-c", "nginx"), 0, "", "")
	check(t, n, run(t, n, "", "cp", "web:"+inside, back+"-dir", "-c", "nginx"), 0, "", "")
	for _, name := range []string{back, back + "-dir/copied"} {
		if data, err := os.ReadFile(name); err != nil || string(data) != "hello" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	if got := run(t, n, "", "cp", "web:/does/not/exist", back, "-c", "nginx"); got.Code != 1 ||
		!strings.Contains(got.Err, "tar in container nginx of pod default/web-pi") || strings.Count(got.Err, "\n") != 1 {
		t.Errorf("a missing file: %+v", got)
	}
	check(t, n, run(t, n, "", "cp", "a", "b"), command.ExitUsage, "", "islet: either a or b must be POD:PATH, the other one a local path\n")
	check(t, n, run(t, n, "", "cp", "web:x", "web:y"), command.ExitUsage, "",
		"islet: either web:x or web:y must be POD:PATH, the other one a local path\n")
	check(t, n, run(t, n, "", "cp", "a"), command.ExitUsage, "", "islet: cp needs two places: islet cp POD:PATH FILE, or islet cp FILE POD:PATH\n")
}
