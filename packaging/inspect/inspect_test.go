package main

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// program builds this very program, with symbols.
func program(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "inspect")
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, "../mkimage")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return path
}

func TestInspect(t *testing.T) {
	path := program(t)
	t.Run("sbom", func(t *testing.T) {
		t.Setenv("SOURCE_DATE_EPOCH", "86400")
		var first, second bytes.Buffer
		for _, out := range []*bytes.Buffer{&first, &second} {
			if err := run([]string{"sbom", path, "1.2.3"}, out); err != nil {
				t.Fatal(err)
			}
		}
		if first.String() != second.String() {
			t.Error("the same binary gave two documents")
		}
		var d document
		if err := json.Unmarshal(first.Bytes(), &d); err != nil {
			t.Fatal(err)
		}
		if d.Packages[0].Version != "1.2.3" || d.Creation.Created != "1970-01-02T00:00:00Z" {
			t.Errorf("version %q, created %q", d.Packages[0].Version, d.Creation.Created)
		}
		ids := map[string]bool{}
		for _, p := range d.Packages {
			if ids[p.ID] {
				t.Errorf("%s stands twice", p.ID)
			}
			ids[p.ID] = true
			if !regexp.MustCompile(`^SPDXRef-[A-Za-z0-9.-]+$`).MatchString(p.ID) {
				t.Errorf("%q is no SPDX identifier", p.ID)
			}
		}
		for _, want := range []string{"SPDXRef-stdlib", "SPDXRef-github.com-google-go-containerregistry"} {
			if !ids[want] {
				t.Errorf("%s is missing", want)
			}
		}
		if len(d.Relationships) != len(d.Packages) {
			t.Errorf("%d relationships of %d packages", len(d.Relationships), len(d.Packages))
		}
	})
	t.Run("size", func(t *testing.T) {
		var out bytes.Buffer
		if err := run([]string{"size", path}, &out); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"github.com/google/go-containerregistry", "github.com/islet-edge/islet", "Go's library"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no size of %s in\n%s", want, &out)
			}
		}
	})
	t.Run("no binary", func(t *testing.T) {
		if err := run([]string{"size", "main.go"}, &bytes.Buffer{}); err == nil {
			t.Error("a source file has a size by module")
		}
	})
}
