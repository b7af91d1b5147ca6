package terminal

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/internal/printable"
)

// A Page is indented text with aligned values, like the output of kubectl describe.
type Page struct {
	Out io.Writer
	t   *command.Tool // for colours; may be nil
}

// ColourIfOn returns the given colour, or Plain if the page has no colours.
func (p Page) ColourIfOn(c Colour) Colour {
	if p.t == nil {
		return Plain
	}
	return ColourIfOn(p.t, c)
}

// WriteLine writes "name: value" at a given depth. The value begins at the given column, so that
// the values of a section are aligned.
func (p Page) WriteLine(depth, column int, name, format string, args ...any) {
	value := printable.Line(fmt.Sprintf(format, args...))
	indent := strings.Repeat("  ", depth)
	name = printable.Line(name) + ":"
	fmt.Fprintln(p.Out, strings.TrimRight(fmt.Sprintf("%s%-*s%s", indent, max(column-len(indent), len(name)+2), name, value), " "))
}

// PageColumn is the column of the values of a pod or another object.
const PageColumn = 18

// WritePairs writes the entries of a map, one per line.
func (p Page) WritePairs(name string, m map[string]string, between string) {
	if len(m) == 0 {
		p.WriteLine(0, PageColumn, name, "<none>")
		return
	}
	head := name + ":"
	for _, k := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(p.Out, "%-*s%s%s%s\n", PageColumn, head, printable.Line(k), between, printable.Line(m[k]))
		head = ""
	}
}

// NewPage returns the page of a command's output.
func NewPage(t *command.Tool) Page { return Page{t.Out, t} }
