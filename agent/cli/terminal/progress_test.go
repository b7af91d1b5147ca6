package terminal

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// TestProgressFits checks that a progress line fits the width of the terminal. The line contains the size and the end of the image's name.
func TestProgressFits(t *testing.T) {
	long := "registry.example.com/some/team/and/a/very/long/name/of/an/image@sha256:" + strings.Repeat("ab", 32)
	for width := 1; width < 200; width++ {
		for _, i := range []item{{"downloading", 5 << 20, 1 << 30}, {"downloading", 1 << 40, 0}, {"exists", 0, 0}, {"unpacking", 2, 1}, {"downloading", 1 << 62, 1 << 62}} {
			if line := i.formatRow(long, width); TextWidth(line) > width || strings.Contains(line, "\n") {
				t.Fatalf("%d cells in %d: %q", TextWidth(line), width, line)
			}
		}
	}
	line := item{"downloading", 512 << 20, 1 << 30}.formatRow(long, 79)
	if !strings.Contains(line, "[") || !strings.Contains(line, "512MiB of 1.0GiB") || !strings.HasSuffix(line, "abab") {
		t.Errorf("at 80 columns: %q", line)
	}
	var out bytes.Buffer
	p := &Progress{w: &out, screen: func() (int, int) { return 80, 4 }, items: map[string]item{}}
	for i := range 10 {
		p.UpdateItem(fmt.Sprint("layer", i), "downloading", 1, 2)
	}
	if p.drawn != 3 || !strings.Contains(out.String(), "\x1b[3A") {
		t.Errorf("%d rows are drawn on a screen of 4", p.drawn)
	}
}
