package pages

import (
	"encoding/binary"
)

const (
	fileHeaderSize = 100 // size of the header before the first page's b-tree
	walHeader      = 32
	walFrame       = 24 // size of a frame's header
	walMagic       = 0x377f0682
	minPage        = 512
	maxPage        = 65536
	magic          = "SQLite format 3\x00"
)

// A File is the content of a database after its -wal was applied.
type File struct {
	pageSize int            // size of a page
	pages    map[int][]byte // pages by number, from 1
	count    int            // number of pages
}

// Open returns the content of a database file and its -wal. It takes the page size from the header of the database. If that header is
// damaged, it takes the page size from the header of the -wal. If both are damaged, it uses the given size.
func Open(db, wal []byte, size int) *File {
	if n := headerSize(db); n > 0 {
		size = n
	} else if n := walSize(wal); n > 0 {
		size = n
	}
	f := &File{pageSize: size, pages: map[int][]byte{}, count: len(db) / size}
	for n := range f.count {
		f.pages[n+1] = db[n*size : (n+1)*size]
	}
	f.replay(wal)
	return f
}

func validSize(n int) bool { return n >= minPage && n <= maxPage && n&(n-1) == 0 }

func headerSize(db []byte) int {
	if len(db) < fileHeaderSize || string(db[:len(magic)]) != magic {
		return 0
	}
	n := int(binary.BigEndian.Uint16(db[16:]))
	if n == 1 {
		n = maxPage
	}
	if !validSize(n) {
		return 0
	}
	return n
}

func walSize(wal []byte) int {
	if len(wal) < walHeader || binary.BigEndian.Uint32(wal)&^1 != walMagic {
		return 0
	}
	if n := int(binary.BigEndian.Uint32(wal[8:])); validSize(n) {
		return n
	}
	return 0
}

// replay applies the frames of a -wal up to the last commit, as SQLite does. Each frame must have the same salts as the header. Its
// checksum must be valid for the header and all frames up to this one.
func (f *File) replay(wal []byte) {
	if walSize(wal) != f.pageSize {
		return
	}
	var order binary.ByteOrder = binary.LittleEndian
	if binary.BigEndian.Uint32(wal)&1 == 1 {
		order = binary.BigEndian
	}
	sum := checksum(order, [2]uint32{}, wal[:24])
	if sum[0] != binary.BigEndian.Uint32(wal[24:]) || sum[1] != binary.BigEndian.Uint32(wal[28:]) {
		return
	}
	fresh := map[int][]byte{}
	for at := walHeader; at+walFrame+f.pageSize <= len(wal); at += walFrame + f.pageSize {
		head, page := wal[at:at+walFrame], wal[at+walFrame:at+walFrame+f.pageSize]
		number, commit := int(binary.BigEndian.Uint32(head)), int(binary.BigEndian.Uint32(head[4:]))
		sum = checksum(order, checksum(order, sum, head[:8]), page)
		if string(head[8:16]) != string(wal[16:24]) || number == 0 ||
			sum[0] != binary.BigEndian.Uint32(head[16:]) || sum[1] != binary.BigEndian.Uint32(head[20:]) {
			return
		}
		fresh[number] = page
		if commit == 0 {
			continue
		}
		for n, p := range fresh {
			f.pages[n] = p
		}
		clear(fresh)
		for n := range f.pages {
			if n > commit {
				delete(f.pages, n)
			}
		}
		f.count = commit
	}
}

func checksum(order binary.ByteOrder, s [2]uint32, data []byte) [2]uint32 {
	for i := 0; i+8 <= len(data); i += 8 {
		s[0] += order.Uint32(data[i:]) + s[1]
		s[1] += order.Uint32(data[i+4:]) + s[0]
	}
	return s
}

// freePages returns the pages on the free list. A damaged list may contain pages that are in use, and the rows on these pages would be
// lost. freePages therefore omits every page to which a page in use refers.
func (f *File) freePages() map[int]bool {
	free := f.freeList()
	var used []int
	for n := range f.pages {
		if !free[n] {
			used = append(used, f.childPages(n)...)
		}
	}
	for len(used) > 0 { // this loop ends, because each page is added only after its removal from free
		n := used[len(used)-1]
		used = used[:len(used)-1]
		if free[n] {
			delete(free, n)
			used = append(used, f.childPages(n)...)
		}
	}
	return free
}

// freeList returns the pages on the free list. If the list is incomplete, freeList also returns all pages that look like a part of the
// list.
func (f *File) freeList() map[int]bool {
	free := map[int]bool{}
	if p := f.pages[1]; headerSize(p) == f.pageSize {
		next := int(binary.BigEndian.Uint32(p[32:]))
		for next != 0 && !free[next] {
			free[next] = true
			next = f.markTrunk(next, free)
		}
		if len(free) >= int(binary.BigEndian.Uint32(p[36:])) {
			return free
		}
	}
	for n := range f.pages {
		f.markTrunk(n, free)
	}
	return free
}

// markTrunk reads a trunk page, which is a part of the free list. It adds the pages that the trunk page lists, and returns the next trunk
// page. It ignores a page that cannot be a trunk page.
func (f *File) markTrunk(n int, free map[int]bool) (next int) {
	p := f.pages[n]
	if p == nil {
		return 0
	}
	next, count := int(binary.BigEndian.Uint32(p)), int(binary.BigEndian.Uint32(p[4:]))
	if next > f.count || count > f.pageSize/4-2 {
		return 0
	}
	named := make([]int, count)
	for i := range named {
		named[i] = int(binary.BigEndian.Uint32(p[8+4*i:]))
		if named[i] < 2 || named[i] > f.count || named[i] == n {
			return 0
		}
	}
	for _, m := range named {
		free[m] = true
	}
	return next
}
