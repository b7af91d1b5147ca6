package main

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A page is a document with its anchors and its relative links.
type page struct {
	anchors, links []string
}

var (
	codeBlock  = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	heading    = regexp.MustCompile(`(?m)^#+ (.*)$`)
	link       = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	inSource   = regexp.MustCompile("`([\\w.]+)(?:\\(\\))?` (?:in |\\()`([\\w/]+\\.go)`")
	notInSlugs = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
)

// parsePage reads a document. The anchors are those of GitHub. If a heading occurs twice, the second anchor ends with "-1".
func parsePage(text string) page {
	text = codeBlock.ReplaceAllString(text, "")
	var p page
	count := map[string]int{}
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		words := regexp.MustCompile(`\]\([^)]*\)`).ReplaceAllString(m[1], "]")
		slug := strings.ReplaceAll(notInSlugs.ReplaceAllString(strings.ToLower(strings.TrimSpace(words)), ""), " ", "-")
		anchor := slug
		if n := count[slug]; n > 0 {
			anchor = fmt.Sprintf("%s-%d", slug, n)
		}
		count[slug]++
		p.anchors = append(p.anchors, anchor)
	}
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		if !strings.Contains(m[1], ":") { // a link to another site
			p.links = append(p.links, m[1])
		}
	}
	return p
}

// readPages reads documents by their paths below dir.
func readPages(t *testing.T, dir string, files []string) map[string]page {
	t.Helper()
	pages := map[string]page{}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		pages[file] = parsePage(string(text))
	}
	return pages
}

// brokenLinks returns the relative links of documents to missing files below dir, and to missing headings of these files.
func brokenLinks(dir string, pages map[string]page) []string {
	var broken []string
	for file, p := range pages {
		for _, l := range p.links {
			to, anchor, _ := strings.Cut(l, "#")
			target := file
			if to != "" {
				target = path.Join(path.Dir(file), to)
			}
			_, err := os.Stat(filepath.Join(dir, target))
			if other, ok := pages[target]; err != nil || anchor != "" && ok && !slices.Contains(other.anchors, anchor) {
				broken = append(broken, file+": "+l)
			}
		}
	}
	slices.Sort(broken)
	return broken
}

// unreachable returns the documents that no chain of links from the index reaches. It considers only documents below the index's directory.
func unreachable(pages map[string]page, index string) []string {
	seen := map[string]bool{index: true}
	for queue := []string{index}; len(queue) > 0; queue = queue[1:] {
		for _, l := range pages[queue[0]].links {
			to, _, _ := strings.Cut(l, "#")
			if target := path.Join(path.Dir(queue[0]), to); to != "" && !seen[target] {
				seen[target] = true
				queue = append(queue, target)
			}
		}
	}
	var missing []string
	for file := range pages {
		if strings.HasPrefix(file, path.Dir(index)+"/") && !seen[file] {
			missing = append(missing, file)
		}
	}
	slices.Sort(missing)
	return missing
}

// TestLinks checks the relative links of all documents in the repository. Every page below docs/ must be reachable from its index. Other
// documents need no link. GitHub shows its templates itself, and README.md and the READMEs of folders are the first pages that a reader
// sees.
func TestLinks(t *testing.T) {
	out, err := exec.Command("git", "ls-files", "*.md").Output()
	if err != nil {
		t.Fatal(err)
	}
	pages := readPages(t, ".", strings.Fields(string(out)))
	for _, l := range brokenLinks(".", pages) {
		t.Errorf("broken link in %s", l)
	}
	for _, file := range unreachable(pages, "docs/README.md") {
		t.Errorf("no link from docs/README.md leads to %s", file)
	}
}

// wrongSources returns the references of a document to names that are not in the file that the document states: `NAME` in `FILE.go`, or
// `NAME` (`FILE.go`). A file without a folder may be in any folder.
func wrongSources(text string, sources map[string]string) (wrong []string) {
	for _, m := range inSource.FindAllStringSubmatch(text, -1) {
		name, found := m[1][strings.LastIndex(m[1], ".")+1:], false
		for file, source := range sources {
			found = found || (file == m[2] || strings.HasSuffix(file, "/"+m[2])) && regexp.MustCompile(`\b`+name+`\b`).MatchString(source)
		}
		if !found {
			wrong = append(wrong, m[0])
		}
	}
	return wrong
}

// TestNamedSources checks that the documents name the right file for each function, type and variable.
func TestNamedSources(t *testing.T) {
	sources := map[string]string{}
	read := func(pattern string, use func(file, text string)) {
		out, err := exec.Command("git", "ls-files", pattern).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range strings.Fields(string(out)) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			use(file, string(text))
		}
	}
	read("*.go", func(file, text string) { sources[file] = text })
	read("*.md", func(file, text string) {
		for _, m := range wrongSources(text, sources) {
			t.Errorf("%s: %s is not there", file, m)
		}
	})
	planted := "`open` in `agent/a.go`, `T.Close()` (`b.go`), `lost` in `agent/a.go`, `open` in `gone.go`"
	got := wrongSources(planted, map[string]string{"agent/a.go": "func open() {}", "net/b.go": "func (t T) Close() {}"})
	if want := []string{"`lost` in `agent/a.go`", "`open` in `gone.go`"}; !slices.Equal(got, want) {
		t.Errorf("wrong: %q, want %q", got, want)
	}
}

// TestLinksOfArchive checks the links of the documents that the archive contains.
func TestLinksOfArchive(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.Command("packaging/docs.sh", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	files, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	decisions, err := filepath.Glob("docs/decisions/*.md")
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, decisions...)
	for i, file := range files {
		files[i] = strings.TrimPrefix(file, "docs/")
	}
	for _, l := range brokenLinks(dir, readPages(t, dir, files)) {
		t.Errorf("broken link in %s", l)
	}
}

// TestBrokenLinks checks that the functions above find planted faults.
func TestBrokenLinks(t *testing.T) {
	dir := t.TempDir()
	for file, text := range map[string]string{
		"docs/README.md": "# Index\n[good](a.md#a-b) [gone](gone.md) [no heading](a.md#c) https://example.com [site](https://example.com/x)\n```\n[code](no.md)\n```\n",
		"docs/a.md":      "# A `b`\n# A b\n[second](#a-b-1) [third](#a-b-2)\n",
		"docs/lost.md":   "[up](README.md)\n",
	} {
		name := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pages := readPages(t, dir, []string{"docs/README.md", "docs/a.md", "docs/lost.md"})
	want := []string{"docs/README.md: a.md#c", "docs/README.md: gone.md", "docs/a.md: #a-b-2"}
	if got := brokenLinks(dir, pages); !slices.Equal(got, want) {
		t.Errorf("broken: %q, want %q", got, want)
	}
	if got := unreachable(pages, "docs/README.md"); !slices.Equal(got, []string{"docs/lost.md"}) {
		t.Errorf("unreachable: %q", got)
	}
}
