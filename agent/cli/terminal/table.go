package terminal

import (
	"fmt"
	"io"
	"strings"
	"unicode"

	"golang.org/x/text/width"

	"github.com/islet-edge/islet/internal/printable"
)

// columnGap is the number of spaces between columns, as in kubectl.
const columnGap = 3

// A Table prints rows with aligned columns. Rows that are added after the first print are aligned with the printed
// ones.
type Table struct {
	Indent string
	rows   []row
	widths []int
}

// A row consists of cells. Some of them are coloured.
type row struct {
	cells   []string
	colours map[int]Colour
}

// AddRow is not inlined, because the copies at its many calls would enlarge the program.
//
//go:noinline
func (t *Table) AddRow(cells ...string) { t.AddColored(nil, cells...) }

// AddColored adds a row. The map contains the colours of cells by column.
func (t *Table) AddColored(colours map[int]Colour, cells ...string) {
	for i := range cells {
		cells[i] = printable.Line(cells[i])
	}
	t.rows = append(t.rows, row{cells, colours})
}

// Print writes the rows that were added since the last call.
func (t *Table) Print(w io.Writer) {
	for _, row := range t.rows {
		for i, cell := range row.cells {
			if i == len(t.widths) {
				t.widths = append(t.widths, 0)
			}
			t.widths[i] = max(t.widths[i], TextWidth(cell))
		}
	}
	for _, row := range t.rows {
		var b strings.Builder
		b.WriteString(t.Indent)
		for i, cell := range row.cells {
			gap := strings.Repeat(" ", t.widths[i]-TextWidth(cell)+columnGap)
			if c := row.colours[i]; c != Plain && cell != "" {
				cell = string(c) + cell + EndColour
			}
			b.WriteString(cell)
			b.WriteString(gap)
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
	t.rows = nil
}

// TextWidth returns the number of terminal cells that s occupies.
func TextWidth(s string) int {
	n := 0
	for _, r := range s {
		switch {
		case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		case isWide(r):
			n += 2
		default:
			n++
		}
	}
	return n
}

func isWide(r rune) bool {
	k := width.LookupRune(r).Kind()
	return k == width.EastAsianWide || k == width.EastAsianFullwidth
}
