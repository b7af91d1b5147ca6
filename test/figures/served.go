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

// Pages are the pages that Prometheus scrapes from a node.
var Pages = []string{"/metrics", "/metrics/cadvisor", "/metrics/resource", "/metrics/probes", "/metrics/slis"}

// A Family is a metric on a page, with its type and the names of its labels.
type Family struct{ Page, Name, Type, Labels string } // the label names in order, separated by commas

func (f Family) String() string {
	return fmt.Sprintf("%s %s: a %s of {%s}", f.Page, f.Name, f.Type, f.Labels)
}

var row = regexp.MustCompile("(?m)^\\| (/metrics[a-z/]*) \\| `(\\w+)` \\| (\\w+) \\| ([^|]*) \\|")

// Documented returns the metric families that are listed in the given text of docs/metrics.md.
func Documented(text string) (out []Family) {
	for _, m := range row.FindAllStringSubmatch(text, -1) {
		out = append(out, Family{m[1], m[2], m[3], strings.ReplaceAll(strings.TrimSpace(m[4]), ", ", ",")})
	}
	return out
}

// Compare compares the names, types and labels of the metrics on pages with the documentation. The map contains the text of each page by
// its path, such as /metrics. Compare returns the differences. It also returns the documented metrics that are not on the pages, each as
// "page name".
func Compare(documented []Family, pages map[string]string) (wrong, unseen []string) {
	known, seen := map[string]Family{}, map[string]bool{}
	for _, f := range documented {
		known[f.Page+" "+f.Name] = f
	}
	for _, page := range slices.Sorted(maps.Keys(pages)) {
		found, err := parsePage(page, pages[page])
		if err != nil {
			wrong = append(wrong, err.Error())
		}
		for _, f := range found {
			want, ok := known[f.Page+" "+f.Name]
			seen[f.Page+" "+f.Name] = true
			switch {
			case strings.HasPrefix(f.Name, "go_") || strings.HasPrefix(f.Name, "process_"): // metrics of every Go program
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

// Check compares the pages of a node with docs/metrics.md below root. The document is generated from the list of metrics in the Kubernetes
// sources. The given function must return the page at a path. Check returns the documented metrics that are not on the pages, each as "page
// name".
func Check(t testing.TB, root string, get func(path string) string) (unseen []string) {
	t.Helper()
	guide, err := os.ReadFile(filepath.Join(root, "docs/metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]string{}
	for _, path := range Pages {
		pages[path] = get(path)
	}
	wrong, unseen := Compare(Documented(string(guide)), pages)
	for _, w := range wrong {
		t.Error(w)
	}
	return unseen
}

// FindPattern returns the key of the map that matches a result of Check, or "" if no key matches.
// The keys are regular expressions for the names of metrics.
func FindPattern(list map[string]string, name string) string {
	for names := range list {
		if regexp.MustCompile("^/metrics(/[a-z]+)? (" + names + ")$").MatchString(name) {
			return names
		}
	}
	return ""
}

// parsePage returns the families on a page. If the lines of a family have different label names, it returns the family once for each set of
// label names.
func parsePage(page, text string) (out []Family, err error) {
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

// labelsOf returns the name of the metric in a line, and the names of the metric's labels. It omits the label le of histograms.
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
