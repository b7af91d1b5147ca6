package pages

import "encoding/binary"

// Types of pages of the b-tree of the schema. The schema is a table with row IDs.
const (
	schemaInterior = 5
	schemaLeaf     = 13
)

// childPages returns the pages to which a page of a b-tree refers, except overflow pages. The references lead from the schema to the
// tables, and from the tables to the rows.
func (f *File) childPages(n int) (list []int) {
	p, at := f.pages[n], 0
	if n == 1 {
		at = fileHeaderSize
	}
	content := at + 12
	switch p[at] {
	case interiorPage, schemaInterior:
		list = append(list, int(binary.BigEndian.Uint32(p[at+8:])))
	case schemaLeaf:
		content = at + 8
	default:
		return nil
	}
	for i := range int(binary.BigEndian.Uint16(p[at+3:])) {
		pointer := content + 2*i
		if pointer+2 > len(p) {
			break
		}
		start := int(binary.BigEndian.Uint16(p[pointer:]))
		switch {
		case start < content || start+4 > len(p):
		case p[at] != schemaLeaf:
			list = append(list, int(binary.BigEndian.Uint32(p[start:])))
		default:
			list = append(list, rootPage(p[start:]))
		}
	}
	return list
}

// rootPage returns the first page of the table that a cell of the schema describes. The number of this page is the fourth column. If the
// column cannot be read, the result is 0.
func rootPage(cell []byte) int {
	_, size := readVarint(cell)
	_, id := readVarint(cell[size:])
	record := cell[size+id:]
	head, n := readVarint(record)
	if size == 0 || id == 0 || n == 0 || head > uint64(len(record)) || head < uint64(n) {
		return 0
	}
	types, body := record[n:head], record[head:]
	var v any
	for range 4 {
		t, n := readVarint(types)
		if n == 0 {
			return 0
		}
		var length int
		var ok bool
		if v, length, ok = decodeColumn(t, body); !ok {
			return 0
		}
		types, body = types[n:], body[length:]
	}
	page, _ := v.(int64)
	return int(page)
}
