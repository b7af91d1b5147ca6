package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// scannerModule is the tool that finds the advisories for the packages of a program.
const scannerModule = "golang.org/x/vuln/cmd/govulncheck@v1.9.0"

const reviewedFile = "reviewed.txt"

// A finding is an advisory that concerns a package of a program.
type finding struct {
	advisory, program, module, version, pkg, fixed string
}

func (f finding) String() string {
	fixed := "no version has a fix"
	if f.fixed != "" {
		fixed = "fixed in " + f.fixed
	}
	return fmt.Sprintf("%s: %s links %s of %s %s, %s: https://pkg.go.dev/vuln/%s",
		f.advisory, f.program, f.pkg, f.module, f.version, fixed, f.advisory)
}

// check returns an error in three cases: a program links a package that has an advisory in the snapshot; a part of the OCI runtime was not
// reviewed; the snapshot is older than maxAge. A maxAge of 0 allows any age.
func (c checker) check(ctx context.Context, maxAge time.Duration, programs []string) error {
	dir, err := os.MkdirTemp("", "advisories")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	head, n, err := c.openSnapshot(dir)
	if err != nil {
		return err
	}
	taken, err := time.Parse(time.DateOnly, head.Taken)
	if err != nil {
		return fmt.Errorf("%s: taken: %w", goFile, err)
	}
	if age := c.now.Sub(taken); maxAge > 0 && age > maxAge {
		return fmt.Errorf("the snapshot of advisories is of %s, older than %d days: take a new one with make advisories",
			head.Taken, int(maxAge.Hours()/24))
	}
	reviewed, err := readReviewed(filepath.Join(c.dir, reviewedFile))
	if err != nil {
		return err
	}
	parts, err := c.checkParts()
	if err != nil {
		return err
	}
	var errs []error
	used := map[string]bool{}
	for _, program := range programs {
		found, err := runScanner(ctx, dir, program, head.Modules)
		if err != nil {
			return err
		}
		for _, f := range found {
			if _, ok := reviewed[f.advisory]; ok {
				used[f.advisory] = true
				continue
			}
			errs = append(errs, errors.New(f.String()))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(reviewed)) {
		if !used[id] {
			errs = append(errs, fmt.Errorf("%s: %s is for no linked package any more: remove its line", reviewedFile, id))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "advisories: of %d of %s, only the %d reviewed ones are for linked packages; "+
		"%d advisories for the OCI runtime's parts are settled\n", n, head.Taken, len(reviewed), parts)
	return nil
}

// readReviewed returns the advisories that were reviewed as harmless, with the reasons.
func readReviewed(file string) (map[string]string, error) {
	reasons := map[string]string{}
	err := eachLine(file, func(line string) error {
		id, reason, _ := strings.Cut(line, " ")
		if !strings.HasPrefix(id, "GO-") || strings.TrimSpace(reason) == "" {
			return errors.New("want an advisory such as GO-2026-1234 and the reason why it is harmless")
		}
		reasons[id] = strings.TrimSpace(reason)
		return nil
	})
	return reasons, err
}

// eachLine passes each line of a file to the caller's function, except empty lines and comments.
func eachLine(file string, do func(line string) error) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		if err := do(line); err != nil {
			return fmt.Errorf("%s: line %d: %w", file, n, err)
		}
	}
	return lines.Err()
}

// A message is one object of govulncheck's JSON output, with the fields that scan needs. See
// https://pkg.go.dev/golang.org/x/vuln/cmd/govulncheck.
type message struct {
	SBOM *struct {
		Modules []struct {
			Path string `json:"path"`
		} `json:"modules"`
	} `json:"SBOM"`
	Finding *struct {
		OSV   string `json:"osv"`
		Fixed string `json:"fixed_version"`
		Trace []struct {
			Module  string `json:"module"`
			Version string `json:"version"`
			Package string `json:"package"`
		} `json:"trace"`
	} `json:"finding"`
}

// runScanner runs govulncheck with the advisories in a directory. It returns the advisories that concern packages of the program. It
// returns an error if the program contains a module that the snapshot does not cover.
func runScanner(ctx context.Context, dir, program string, modules []string) ([]finding, error) {
	cmd := exec.CommandContext(ctx, "go", "run", scannerModule, "-db", "file://"+dir, "-scan", "package", "-format", "json", program)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("govulncheck %s: %w: %s", program, err, &problems)
	}
	found, linked := map[string]finding{}, 0
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var m message
		if err := dec.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("govulncheck %s: its output: %w", program, err)
		}
		if m.SBOM != nil {
			for _, l := range m.SBOM.Modules {
				if _, ok := slices.BinarySearch(modules, l.Path); !ok && l.Path != ownModule {
					return nil,
						fmt.Errorf("the snapshot of advisories does not cover %s, which %s links: take a new one with make advisories",
							l.Path, program)
				}
				linked++
			}
		}
		if f := m.Finding; f != nil && len(f.Trace) > 0 && f.Trace[0].Package != "" {
			t := f.Trace[0]
			found[f.OSV] = finding{f.OSV, program, t.Module, t.Version, t.Package, f.Fixed}
		}
	}
	if linked == 0 {
		return nil, fmt.Errorf("govulncheck %s listed no module: the format of its output has changed", program)
	}
	byID := func(a, b finding) int { return strings.Compare(a.advisory, b.advisory) }
	return slices.SortedFunc(maps.Values(found), byID), nil
}

const ownModule = "github.com/islet-edge/islet"
