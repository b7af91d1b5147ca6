package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestManPages checks that each command has a man page with all its flags. troff must report no warning.
func TestManPages(t *testing.T) {
	pages := manPages()
	for _, c := range commands() {
		if c.Hidden || c.Sub != nil {
			continue
		}
		page := string(pages["islet-"+c.Name+".1"])
		if !strings.Contains(page, ".SH SYNOPSIS") || !strings.Contains(string(pages["islet.1"]), escapeTroff("islet-"+c.Name)) {
			t.Errorf("%s has no page: %q", c.Name, page)
		}
	}
	if page := string(pages["islet-images-prune.1"]); !strings.Contains(page, `\-\-dry\-run`) {
		t.Errorf("a flag is missing: %s", page)
	}
	dir := t.TempDir()
	check(t, nil, run(t, nil, "", "man", dir), 0, "", "")
	again := manPages()
	for name, text := range pages {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(data, text) || !bytes.Equal(again[name], text) {
			t.Errorf("%s: %v, or not the same each time", name, err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "'") || strings.HasPrefix(line, ".") &&
				!regexp.MustCompile(`^\.(TH|SH|TP|PP|br|B|BR|I|RS|RE|EX|EE)\b`).MatchString(line) {
				t.Errorf("%s: troff takes %q for a request", name, line)
			}
		}
	}
	if _, err := exec.LookPath("groff"); err != nil {
		return
	}
	for name, text := range pages {
		cmd := exec.Command("groff", "-man", "-ww", "-z")
		cmd.Stdin = bytes.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v %s", name, err, out)
		}
	}
}
