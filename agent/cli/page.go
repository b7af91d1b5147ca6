package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/internal/printable"
)

// A page is indented text with aligned values, like the output of kubectl describe.
type page struct {
	w io.Writer
	t *command.Tool // for colours; may be nil
}

func (p page) colourIfOn(c colour) colour {
	if p.t == nil {
		return plain
	}
	return colourIfOn(p.t, c)
}

// writeLine writes "name: value" at a given depth. The value begins at the given column, so that
// the values of a section are aligned.
func (p page) writeLine(depth, column int, name, format string, args ...any) {
	value := printable.Line(fmt.Sprintf(format, args...))
	indent := strings.Repeat("  ", depth)
	name = printable.Line(name) + ":"
	fmt.Fprintln(p.w, strings.TrimRight(fmt.Sprintf("%s%-*s%s", indent, max(column-len(indent), len(name)+2), name, value), " "))
}

// podColumn is the column of the values of a pod or another object.
const podColumn = 18

// writePairs writes the entries of a map, one per line.
func (p page) writePairs(name string, m map[string]string, between string) {
	if len(m) == 0 {
		p.writeLine(0, podColumn, name, "<none>")
		return
	}
	head := name + ":"
	for _, k := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(p.w, "%-*s%s%s%s\n", podColumn, head, printable.Line(k), between, printable.Line(m[k]))
		head = ""
	}
}

// newPage returns the page of a command's output.
func newPage(t *command.Tool) page { return page{t.Out, t} }
