package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/islet-edge/islet/internal/durable"
)

// A header is the first line of a snapshot.
type header struct {
	Source  string   `json:"source"` // module and version of the advisories
	Taken   string   `json:"taken"`  // day of this version, YYYY-MM-DD
	License string   `json:"license"`
	Modules []string `json:"modules"` // the modules that the advisories cover; "stdlib" is the standard library
}

// An advisory is an OSV entry with only the fields that a check needs. See https://ossf.github.io/osv-schema/.
type advisory struct {
	ID        string          `json:"id"`
	Modified  string          `json:"modified"`
	Aliases   []string        `json:"aliases,omitempty"`
	Summary   string          `json:"summary,omitempty"`
	Withdrawn string          `json:"withdrawn,omitempty"`
	Affected  json.RawMessage `json:"affected"`
}

const (
	goFile          = "go.jsonl"
	standardLibrary = "stdlib" // the name of the standard library in the database
)

// takeSnapshot writes go.jsonl from a directory with the OSV files of the module golang.org/x/vulndb. The snapshot contains the version of
// this module.
func (c checker) takeSnapshot(ctx context.Context, version, dir string) error {
	taken, err := dayOf(version)
	if err != nil {
		return err
	}
	modules, err := moduleGraph(ctx)
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(dir, "GO-*.json"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("%s has no file GO-*.json: name the folder data/osv of golang.org/x/vulndb", dir)
	}
	var b bytes.Buffer
	lines := json.NewEncoder(&b)
	lines.SetEscapeHTML(false)
	head := header{Source: "golang.org/x/vulndb@" + version, Taken: taken, License: "CC-BY-4.0, the Go Authors", Modules: modules}
	if err := lines.Encode(head); err != nil {
		return err
	}
	n := 0
	for _, f := range files {
		a, err := readAdvisory(f, modules)
		if err != nil {
			return fmt.Errorf("read %s: %w", f, err)
		}
		if a == nil {
			continue
		}
		if err := lines.Encode(a); err != nil {
			return err
		}
		n++
	}
	if err := durable.Write(filepath.Join(c.dir, goFile), b.Bytes(), 0o644); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "advisories: %d of %d advisories concern a module of the build; the snapshot is of %s\n", n, len(files), taken)
	return nil
}

var pseudoVersion = regexp.MustCompile(`-(\d{8})\d{6}-[0-9a-f]{12}$`)

// dayOf returns the day in a pseudo-version of a Go module, as YYYY-MM-DD.
func dayOf(version string) (string, error) {
	m := pseudoVersion.FindStringSubmatch(version)
	if m == nil {
		return "", fmt.Errorf("%q is not a version of golang.org/x/vulndb such as v0.0.0-20261105234957-e22db6528018", version)
	}
	day, err := time.Parse("20060102", m[1])
	if err != nil {
		return "", err
	}
	return day.Format(time.DateOnly), nil
}

// moduleGraph returns the sorted paths of all modules in the build's module graph, and the name of the standard library.
func moduleGraph(ctx context.Context) ([]string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "all").Output()
	if err != nil {
		return nil, fmt.Errorf("go list -m all: %w", err)
	}
	modules := []string{standardLibrary}
	for line := range strings.Lines(string(out)) {
		if path, _, ok := strings.Cut(strings.TrimSpace(line), " "); ok { // the main module has no version
			modules = append(modules, path)
		}
	}
	slices.Sort(modules)
	return slices.Compact(modules), nil
}

// readAdvisory returns the advisory in a file. It returns nil if the advisory was withdrawn, or concerns none of the modules.
func readAdvisory(file string, modules []string) (*advisory, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var a advisory
	if err := json.Unmarshal(b, &a); err != nil {
		return nil, err
	}
	if a.Withdrawn != "" {
		return nil, nil
	}
	var affected []struct {
		Package struct {
			Name string `json:"name"`
		} `json:"package"`
	}
	if err := json.Unmarshal(a.Affected, &affected); err != nil {
		return nil, err
	}
	for _, p := range affected {
		if _, ok := slices.BinarySearch(modules, p.Package.Name); ok {
			var compact bytes.Buffer
			if err := json.Compact(&compact, a.Affected); err != nil {
				return nil, err
			}
			a.Affected = compact.Bytes()
			return &a, nil
		}
	}
	return nil, nil
}

// openSnapshot reads the header of go.jsonl and writes its advisories as OSV files to dir. It
// returns the number of advisories.
func (c checker) openSnapshot(dir string) (header, int, error) {
	var head header
	f, err := os.Open(filepath.Join(c.dir, goFile))
	if err != nil {
		return head, 0, err
	}
	defer f.Close()
	lines := json.NewDecoder(bufio.NewReader(f))
	if err := lines.Decode(&head); err != nil {
		return head, 0, fmt.Errorf("%s: the first line: %w", f.Name(), err)
	}
	for n := 0; ; n++ {
		var a advisory
		if err := lines.Decode(&a); errors.Is(err, io.EOF) {
			return head, n, nil
		} else if err != nil {
			return head, n, fmt.Errorf("%s: line %d: %w", f.Name(), n+2, err)
		}
		b, err := json.Marshal(a)
		if err != nil {
			return head, n, err
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(a.ID)+".json"), b, 0o644); err != nil {
			return head, n, err
		}
	}
}
