package pages

import (
	"encoding/binary"
	"iter"
	"maps"
	"math"
	"slices"
	"unicode/utf8"
)

// Types of pages of an index b-tree. SQLite stores tables WITHOUT ROWID in such trees.
const (
	interiorPage = 2
	leafPage     = 10
)

// A Row is a row of a table. The name of the table is not known.
type Row struct {
	Page   int
	Values []any // nil, int64, float64, string or []byte, in the stored order, which begins with the key columns
}

// Rows iterates over all readable rows, in the order of their pages.
func (f *File) Rows() iter.Seq[Row] {
	return func(yield func(Row) bool) {
		free := f.freePages()
		for _, n := range slices.Sorted(maps.Keys(f.pages)) {
			if free[n] {
				continue
			}
			for _, cell := range f.readCells(n) {
				if values, ok := decodeRecord(cell); ok && !yield(Row{n, values}) {
					return
				}
			}
		}
	}
}

// readCells returns the complete payloads of a page.
func (f *File) readCells(n int) (list [][]byte) {
	p, at := f.pages[n], 0
	if n == 1 {
		at = fileHeaderSize // in an intact file, page 1 contains only the schema, which is a table with row IDs and is skipped
	}
	skip, content := 0, at+8
	switch p[at] {
	case leafPage:
	case interiorPage:
		skip, content = 4, at+12
	default:
		return nil
	}
	for i := range int(binary.BigEndian.Uint16(p[at+3:])) {
		pointer := content + 2*i
		if pointer+2 > len(p) {
			break
		}
		start := int(binary.BigEndian.Uint16(p[pointer:])) + skip
		if start < content || start >= len(p) {
			continue
		}
		if data, ok := f.readPayload(p, start); ok {
			list = append(list, data)
		}
	}
	return list
}

// readPayload returns the content of a cell, including its overflow pages.
func (f *File) readPayload(p []byte, at int) ([]byte, bool) {
	size, n := readVarint(p[at:])
	if n == 0 || size == 0 || size > uint64(f.count*f.pageSize) {
		return nil, false
	}
	at += n
	total := int(size)
	local := f.localSize(total)
	if at+local > len(p) {
		return nil, false
	}
	data := p[at : at+local]
	if local == total {
		return data, true
	}
	at += local
	if at+4 > len(p) {
		return nil, false
	}
	data = slices.Clone(data)
	next := int(binary.BigEndian.Uint32(p[at:]))
	for len(data) < total { // this loop ends, because each page adds data
		q := f.pages[next]
		if q == nil || isZero(q) { // blocks that an SD card has lost contain only zeros
			return nil, false
		}
		next = int(binary.BigEndian.Uint32(q))
		data = append(data, q[4:4+min(total-len(data), f.pageSize-4)]...)
	}
	return data, next == 0
}

func isZero(p []byte) bool {
	return !slices.ContainsFunc(p, func(b byte) bool { return b != 0 })
}

// localSize returns the size of the part of a payload that is on the cell's own page.
func (f *File) localSize(total int) int {
	u := f.pageSize // islet's files have no reserved space, even if a damaged header has a value for it
	most, least := (u-12)*64/255-23, (u-12)*32/255-23
	if total <= most {
		return total
	}
	if k := least + (total-least)%(u-4); k <= most {
		return k
	}
	return least
}

// readVarint reads a number of up to nine bytes. The second result is the length of the number in bytes, or 0 if the number is invalid.
func readVarint(b []byte) (v uint64, n int) {
	for i := range min(len(b), 9) {
		if i == 8 {
			return v<<8 | uint64(b[i]), 9
		}
		v = v<<7 | uint64(b[i]&0x7f)
		if b[i] < 0x80 {
			return v, i + 1
		}
	}
	return 0, 0
}

// decodeRecord decodes the columns of a row. It returns false if the columns are shorter or longer than the record.
func decodeRecord(b []byte) (values []any, ok bool) {
	size, n := readVarint(b)
	if n == 0 || size < uint64(n) || size > uint64(len(b)) {
		return nil, false
	}
	types, body := b[n:size], b[size:]
	for len(types) > 0 {
		t, n := readVarint(types)
		if n == 0 {
			return nil, false
		}
		types = types[n:]
		v, length, ok := decodeColumn(t, body)
		if !ok {
			return nil, false
		}
		values, body = append(values, v), body[length:]
	}
	return values, len(body) == 0 && len(values) > 0
}

// decodeColumn decodes a value of the given serial type (a number that encodes type and length).
func decodeColumn(t uint64, b []byte) (v any, length int, ok bool) {
	switch {
	case t == 0:
		return nil, 0, true
	case t == 8, t == 9:
		return int64(t - 8), 0, true
	case t <= 7:
		length = []int{0, 1, 2, 3, 4, 6, 8, 8}[t]
		if length > len(b) {
			return nil, 0, false
		}
		var u uint64
		for _, c := range b[:length] {
			u = u<<8 | uint64(c)
		}
		if t == 7 {
			return math.Float64frombits(u), length, true
		}
		shift := 64 - 8*length
		return int64(u<<shift) >> shift, length, true
	case t < 12 || (t-12)/2 > uint64(len(b)):
		return nil, 0, false
	}
	length = int((t - 12) / 2)
	if t%2 == 0 {
		return slices.Clone(b[:length]), length, true
	}
	return string(b[:length]), length, utf8.Valid(b[:length])
}
