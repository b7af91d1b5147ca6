// Package figures prints the results of benchmarks, and compares the metrics of a node with their
// documentation and with the needs of Prometheus rules for a kubelet.
package figures

import (
	"fmt"
	"strings"
)

// A Table contains measured values and the project's goals for them.
type Table struct{ rows [][4]string }

// Add adds a row.
func (f *Table) Add(what, value, goal, note string) {
	f.rows = append(f.rows, [4]string{what, value, goal, note})
}

// String returns the table in Markdown.
func (f *Table) String() string {
	var b strings.Builder
	width := [4]int{6, 5, 4, 4}
	all := append([][4]string{{"figure", "value", "goal", "note"}, {"---", "---", "---", "---"}}, f.rows...)
	for _, r := range all {
		for i := range r {
			width[i] = max(width[i], len(r[i]))
		}
	}
	for _, r := range all {
		fmt.Fprintf(&b, "| %-*s | %*s | %-*s | %-*s |\n", width[0], r[0], width[1], r[1], width[2], r[2], width[3], r[3])
	}
	return b.String()
}
