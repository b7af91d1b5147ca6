package figures

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Pages contains the pages that Prometheus scrapes from a node.
var Pages = []string{"/metrics", "/metrics/cadvisor", "/metrics/resource", "/metrics/probes", "/metrics/slis"}

// A Family describes the lines of a page with the same metric name.
type Family struct{ Page, Name, Type, Labels string } // the label names in order, separated by commas

func (f Family) String() string {
	return fmt.Sprintf("%s %s: a %s of {%s}", f.Page, f.Name, f.Type, f.Labels)
}

var row = regexp.MustCompile("(?m)^\\| (/metrics[a-z/]*) \\| `(\\w+)` \\| (\\w+) \\| ([^|]*) \\|")

// Documented returns the families that a node serves according to the text of docs/metrics.md.
func Documented(text string) (out []Family) {
	for _, m := range row.FindAllStringSubmatch(text, -1) {
		out = append(out, Family{m[1], m[2], m[3], strings.ReplaceAll(strings.TrimSpace(m[4]), ", ", ",")})
	}
	return out
}

// Compare compares pages, by their paths, with the documentation: names, types, and the labels of each line. wrong contains the
// differences. unseen contains the documented names that no page has, each after its page.
func Compare(documented []Family, pages map[string]string) (wrong, unseen []string) {
	known, seen := map[string]Family{}, map[string]bool{}
	for _, f := range documented {
		known[f.Page+" "+f.Name] = f
	}
	for _, page := range slices.Sorted(maps.Keys(pages)) {
		found, err := families(page, pages[page])
		if err != nil {
			wrong = append(wrong, err.Error())
		}
		for _, f := range found {
			want, ok := known[f.Page+" "+f.Name]
			seen[f.Page+" "+f.Name] = true
			switch {
			case strings.HasPrefix(f.Name, "go_") || strings.HasPrefix(f.Name, "process_"): // these exist in every Go program
			case !ok:
				wrong = append(wrong, fmt.Sprintf("%v, which is not documented", f))
			case f != want:
				wrong = append(wrong, fmt.Sprintf("%v, documented as a %s of {%s}", f, want.Type, want.Labels))
			}
		}
	}
	for name := range known {
		if !seen[name] {
			unseen = append(unseen, name)
		}
	}
	slices.Sort(unseen)
	return wrong, unseen
}

// Check compares the pages of a node with docs/metrics.md below root, which is generated from upstream's own list. ask returns a page.
// Check returns the names that no page has.
func Check(t testing.TB, root string, ask func(path string) string) (unseen []string) {
	t.Helper()
	guide, err := os.ReadFile(filepath.Join(root, "docs/metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]string{}
	for _, path := range Pages {
		pages[path] = ask(path)
	}
	wrong, unseen := Compare(Documented(string(guide)), pages)
	for _, w := range wrong {
		t.Error(w)
	}
	return unseen
}

// Listed returns the key of a list that matches a whole name from Check, or "" if no key matches.
func Listed(list map[string]string, name string) string {
	for names := range list {
		if regexp.MustCompile("^/metrics(/[a-z]+)? (" + names + ")$").MatchString(name) {
			return names
		}
	}
	return ""
}

// families parses a page. It returns each family once for each set of its labels.
func families(page, text string) (out []Family, err error) {
	seen := map[Family]bool{}
	f := Family{Page: page}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if kind, ok := strings.CutPrefix(line, "# TYPE "); ok {
			f.Name, f.Type, _ = strings.Cut(kind, " ")
			continue
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, labels := labelsOf(line)
		if base := strings.TrimPrefix(name, f.Name); base != "" &&
			!((f.Type == "histogram" || f.Type == "summary") && slices.Contains([]string{"_bucket", "_sum", "_count"}, base)) {
			return out, fmt.Errorf("%s: a line of %s in the family %s", page, name, f.Name)
		}
		f.Labels = strings.Join(labels, ",")
		if !seen[f] {
			seen[f] = true
			out = append(out, f)
		}
	}
	return out, nil
}

// labelsOf returns the name of a line and the names of its labels, except the special labels of histograms.
func labelsOf(line string) (name string, labels []string) {
	end := strings.IndexAny(line, "{ ")
	if end < 0 {
		return line, nil
	}
	name, rest := line[:end], line[end+1:]
	if line[end] == ' ' {
		return name, nil
	}
	for rest != "" && rest[0] != '}' {
		label, value, _ := strings.Cut(rest, `="`)
		i := 0
		for i < len(value) && value[i] != '"' {
			if value[i] == '\\' {
				i++
			}
			i++
		}
		rest = strings.TrimPrefix(value[min(len(value), i+1):], ",")
		if label != "le" {
			labels = append(labels, label)
		}
	}
	slices.Sort(labels)
	return name, labels
}
