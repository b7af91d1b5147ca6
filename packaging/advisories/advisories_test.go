package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// planted is an advisory for every version of a module that islet links.
const planted = `{"id":"GO-2026-0001","modified":"2026-11-01T00:00:00Z","affected":[{"package":{"name":"github.com/spf13/pflag","ecosystem":"Go"},` +
	`"ranges":[{"type":"SEMVER","events":[{"introduced":"0"}]}],"ecosystem_specific":{"imports":[{"path":"github.com/spf13/pflag"}]}}]}`

// program is a small program of islet that links pflag.
const program = "github.com/islet-edge/islet/internal/config"

// copyOf returns a checker for a copy of the repository's files. A test may change the copy.
func copyOf(t *testing.T) (checker, *bytes.Buffer) {
	t.Helper()
	dir, out := t.TempDir(), &bytes.Buffer{}
	for _, name := range []string{goFile, reviewedFile, partsFile} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name), string(b))
	}
	return checker{dir: dir, sources: "../oci/sources", patches: "../oci/patches", now: time.Now(), out: out}, out
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func edit(t *testing.T, file string, change func(string) string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, change(string(b)))
}

// TestPlantedAdvisory checks that an advisory for a linked package fails the check until the advisory is reviewed.
func TestPlantedAdvisory(t *testing.T) {
	c, out := copyOf(t)
	edit(t, filepath.Join(c.dir, goFile), func(s string) string { return s + planted + "\n" })
	err := c.check(t.Context(), 0, []string{program})
	if err == nil || !strings.Contains(err.Error(), "GO-2026-0001") || !strings.Contains(err.Error(), "github.com/spf13/pflag") ||
		!strings.Contains(err.Error(), "no version has a fix") {
		t.Fatalf("not found: %v", err)
	}
	edit(t, filepath.Join(c.dir, reviewedFile), func(s string) string { return s + "GO-2026-0001 a test planted it\n" })
	// Advisories for the Go toolchain of this machine do not matter for this test.
	if err := c.check(t.Context(), 0, []string{program}); err != nil && strings.Contains(err.Error(), "GO-2026-0001") || err == nil && !strings.Contains(out.String(), "only the 1 reviewed") {
		t.Errorf("reviewed: %v, %s", err, out)
	}
}

// TestCheckRefuses checks that the check also fails for reasons other than an advisory for a linked package.
func TestCheckRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		file   string
		change func(string) string
		maxAge time.Duration
		want   string
	}{
		"an old snapshot":              {goFile, func(s string) string { return strings.Replace(s, `"taken":"`, `"taken":"1999-12-31","was":"`, 1) }, 24 * time.Hour, "take a new one"},
		"a day that is none":           {goFile, func(s string) string { return strings.Replace(s, `"taken":"`, `"taken":"x`, 1) }, 0, "taken"},
		"a truncated snapshot":         {goFile, func(s string) string { return s[:len(s)-100] }, 0, "line"},
		"an unknown module":            {goFile, func(s string) string { return strings.Replace(s, `"github.com/spf13/pflag",`, "", 1) }, 0, "does not cover github.com/spf13/pflag"},
		"a review without a reason":    {reviewedFile, func(s string) string { return s + "GO-2026-0001\n" }, 0, "the reason"},
		"a review of nothing":          {reviewedFile, func(s string) string { return s + "GO-2026-0001 reason\n" }, 0, "remove its line"},
		"a part of another version":    {partsFile, func(s string) string { return strings.Replace(s, "version crun 1.21-1", "version crun 1.20-1", 1) }, 0, "crun 1.21-1 was not reviewed"},
		"another C library":            {partsFile, func(s string) string { return strings.Replace(s, "version glibc 2.36", "version glibc 2.35", 1) }, 0, "glibc 2.36-"},
		"a patch that is not there":    {partsFile, func(s string) string { return strings.Replace(s, "exec-user.patch", "none.patch", 1) }, 0, "none.patch"},
		"a verdict that is none":       {partsFile, func(s string) string { return strings.Replace(s, " fixed ", " fine ", 1) }, 0, `"fine"`},
		"an advisory of another thing": {partsFile, func(s string) string { return s + "CVE-2026-1 runc fixed 1.5\n" }, 0, "no version of it was reviewed"},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := copyOf(t)
			edit(t, filepath.Join(c.dir, tt.file), tt.change)
			if err := c.check(t.Context(), tt.maxAge, []string{program}); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// TestSnapshot checks that a snapshot has the advisories for the modules of the build, except withdrawn advisories.
func TestSnapshot(t *testing.T) {
	c, out := copyOf(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "GO-2026-0001.json"), planted)
	write(t, filepath.Join(dir, "GO-2026-0002.json"),
		strings.Replace(strings.Replace(planted, "0001", "0002", 1), `"modified"`, `"withdrawn":"2026-11-02T00:00:00Z","modified"`, 1))
	write(t, filepath.Join(dir, "GO-2026-0003.json"),
		strings.NewReplacer("0001", "0003", "github.com/spf13/pflag", "example.com/none").Replace(planted))
	if err := c.takeSnapshot(t.Context(), "v0.0.0-20261105234957-e22db6528018", dir); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "1 of 3 advisories") {
		t.Errorf("it says %s", out)
	}
	head, n, err := c.openSnapshot(t.TempDir())
	if err != nil || n != 1 || head.Taken != "2026-11-05" || head.Source != "golang.org/x/vulndb@v0.0.0-20261105234957-e22db6528018" {
		t.Errorf("%+v, %d, %v", head, n, err)
	}
	for _, version := range []string{"latest", "v1.0.0"} {
		if err := c.takeSnapshot(t.Context(), version, dir); err == nil {
			t.Errorf("a snapshot of version %q was accepted", version)
		}
	}
	if err := c.takeSnapshot(t.Context(), "v0.0.0-20261105234957-e22db6528018", t.TempDir()); err == nil {
		t.Error("a snapshot of an empty folder was taken")
	}
}
