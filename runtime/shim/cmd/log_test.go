package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestOwnLog checks that the log of a shim stays small. It contains the newest lines and the number of dropped lines.
func TestOwnLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "1.log")
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	now := time.Unix(0, 0)
	l := &ownLog{f: f, now: func() time.Time { return now }}
	content := func() string {
		t.Helper()
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for i := range 10_000 {
		if _, err := fmt.Fprintf(l, "line %d\n", i); err != nil {
			t.Fatal(err)
		}
	}
	if got := content(); strings.Count(got, "\n") != burstLines {
		t.Errorf("%d lines of 10,000", strings.Count(got, "\n"))
	}
	now = now.Add(time.Minute)
	fmt.Fprintln(l, "later")
	if got := content(); !strings.HasSuffix(got, fmt.Sprintf(" lines=%d\nlater\n", 10_000-burstLines)) {
		t.Errorf("after a minute: %s", got)
	}
	for i := range 5000 { // writes the long lines of one day
		now = now.Add(linePause)
		if _, err := fmt.Fprintln(l, i, strings.Repeat("x", 2*maxOwnLine)); err != nil {
			t.Fatal(err)
		}
		if n := len(content()); n > maxOwnLog+maxOwnLine {
			t.Fatalf("%d bytes", n)
		}
	}
	if got := content(); !strings.Contains(got, "\n4999 xxx") || len(got) < keepOwnLog/2 {
		t.Errorf("the last line is missing in %d bytes", len(got))
	}
}
