package ctrd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestBootName checks that a boot keeps its name, also after an update of islet. The next boot has another name, even if the file with the
// stored name was removed.
func TestBootName(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "boot")
	name := func(id string) string {
		t.Helper()
		n, err := bootName(dir, id)
		if err != nil || len(n) < 20 || strings.ContainsAny(n, " \n") {
			t.Fatalf("%q, %v", n, err)
		}
		return n
	}
	first := name("a")
	old := time.Unix(1e9, 0)
	if err := os.Chtimes(file, old, old); err != nil {
		t.Fatal(err)
	}
	if got := name("a"); got != first {
		t.Errorf("the same boot is %s, not %s", got, first)
	}
	if st, err := os.Stat(file); err != nil || !st.ModTime().Equal(old) {
		t.Errorf("the name of the boot did not change, but its file was written again: %v", err)
	}
	second := name("b")
	if second == first {
		t.Error("the next boot has the same name, although the kernel's boot ID differs")
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if got := name("b"); got == second {
		t.Error("the next boot has the same name, although the file was removed")
	}
	if err := os.WriteFile(file, []byte(first), 0o600); err != nil {
		t.Fatal(err)
	}
	if a, b := name("c"), name("c"); a != first || b != first {
		t.Errorf("after an update the boot is %s, then %s, not %s", a, b, first)
	}
	if name("d") == first {
		t.Error("the boot after an update has the same name")
	}
	if err := os.WriteFile(file, []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := name(""); got != name("") {
		t.Error("without the kernel's boot ID, a boot has two names")
	}
	if n, err := bootName(filepath.Join(dir, "missing"), "a"); err == nil || n == "" {
		t.Errorf("if the file cannot be written: %q, %v", n, err)
	}
}
