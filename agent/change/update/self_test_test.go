package update

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestSelfTestDirectory checks that a self-test has its temporary files in the Stager's directory, which no other user can fill, and that
// files of a self-test that was cut off are removed.
func TestSelfTestDirectory(t *testing.T) {
	w := newIndexWorld(t)
	old := filepath.Join(w.Dir, "self-test", "old")
	if err := os.MkdirAll(old, 0o700); err != nil {
		t.Fatal(err)
	}
	w.RemoveOld()
	if got := left(t, w.Stager); got != "islet" {
		t.Errorf("%q is left", got)
	}
	if err := os.MkdirAll(old, 0o700); err != nil {
		t.Fatal(err)
	}
	file := archive(t, w.dir, "tmp.tar.gz", "0.2.0", runtime.GOARCH, program(t, "tmp"), w.key)
	if _, err := w.Stage(t.Context(), file, false, nil, nil); err == nil ||
		!strings.Contains(err.Error(), "TMPDIR="+filepath.Join(w.Dir, "self-test")+" [] <nil>") {
		t.Error(err)
	}
}
