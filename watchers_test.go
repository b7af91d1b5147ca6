package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWatchers checks that every watcher of directories reads the channel Errors, which reports
// lost events. fsnotify blocks until an error is read, and reports no events meanwhile.
func TestWatchers(t *testing.T) {
	looked := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path != "." && strings.HasPrefix(d.Name(), ".") || path == "test" {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(text, []byte("fsnotify.NewWatcher(")) {
			return err
		}
		looked++
		if !bytes.Contains(text, []byte(".Errors")) {
			t.Errorf("%s: Errors of the watcher is not read", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if looked < 6 {
		t.Errorf("only %d watchers were found", looked)
	}
}
