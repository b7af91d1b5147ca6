package capped_test

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/islet-edge/islet/internal/capped"
)

func TestBuffer(t *testing.T) {
	for _, c := range []struct {
		writes []string
		want   string
		cut    bool
	}{
		{nil, "", false},
		{[]string{"a", "bc"}, "abc", false},
		{[]string{"abcd", ""}, "abcd", false},
		{[]string{"abcd", "e"}, "abcd", true},
		{[]string{"abc", "def", "g"}, "abcd", true},
	} {
		b := &capped.Buffer{Max: 4}
		for _, w := range c.writes {
			if n, err := b.Write([]byte(w)); n != len(w) || err != nil {
				t.Errorf("%q: wrote %d, %v", c.writes, n, err)
			}
		}
		if b.String() != c.want || string(b.Bytes()) != c.want || b.Truncated() != c.cut {
			t.Errorf("%q: %q, truncated: %v", c.writes, b.String(), b.Truncated())
		}
	}
}

// TestCopy checks that no way to copy a stream into the buffer bypasses the limit.
func TestCopy(t *testing.T) {
	b := &capped.Buffer{Max: 1000}
	if n, err := io.Copy(b, struct{ io.Reader }{strings.NewReader(strings.Repeat("x", 1<<20))}); n != 1<<20 || err != nil {
		t.Errorf("copied %d, %v", n, err)
	}
	program := &capped.Buffer{Max: 1000}
	c := exec.Command(os.Args[0], "-test.run=^TestFloodingProgram$")
	c.Env = append(os.Environ(), "FLOOD=1")
	c.Stdout, c.Stderr = program, program
	if err := c.Run(); err != nil {
		t.Error(err)
	}
	for _, b := range []*capped.Buffer{b, program} {
		if got := b.Bytes(); string(got) != strings.Repeat("x", 1000) || cap(got) > 1000 || !b.Truncated() {
			t.Errorf("kept %d bytes: %.40q", len(got), got)
		}
	}
}

// TestFloodingProgram is the program of TestCopy.
func TestFloodingProgram(t *testing.T) {
	if os.Getenv("FLOOD") == "" {
		t.Skip("it is started by TestCopy")
	}
	os.Stdout.WriteString(strings.Repeat("x", 1<<20))
}
