package daemon

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// The file format of bbolt. Numbers have the byte order of the machine.
const (
	boltMagic   = 0xED0CDAED
	boltVersion = 2

	pageHeader  = 16 // page number, flags, number of elements, number of overflow pages
	elementSize = 16 // of a leaf element and of a branch element
	metaSize    = 64 // the meta data behind the page header, with their checksum
	metaSummed  = 56 // the bytes of the meta data that the checksum covers

	branchPage   = 0x01
	leafPage     = 0x02
	freelistPage = 0x10
	bucketLeaf   = 0x01 // flag of an element: its value is a bucket

	noFreelist  = ^uint64(0)
	manyEntries = 0xFFFF // the real length of the list of free pages is its first entry
)

// Limits of the databases, far above the sizes on a node with thousands of images.
const (
	maxBoltFile  = 4 << 30
	maxBoltPage  = 16 << 20 // with its overflow pages
	maxBoltDepth = 64
)

// errDamaged is the error of checkBolt for a file that bbolt must not open, errEmpty is for an empty file, and errNoRecords is for an
// intact database that bbolt has created and nobody has used.
var (
	errDamaged   = errors.New("the database is damaged")
	errEmpty     = errors.New("it is empty")
	errNoRecords = errors.New("it has no records")
)

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errDamaged}, args...)...)
}

// checkBolt checks all pages that bbolt can reach in a database. bbolt maps the file: a damaged page ends the process with a panic in a
// goroutine of bbolt, and an unreadable sector ends it with SIGBUS. checkBolt reads the file instead, and returns errDamaged. It checks the
// same properties as bbolt's own check, and the bounds of all keys and values. The contents of values are not checked. An error of the disk
// is returned as it is. The caller must hold the lock of the file.
func checkBolt(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() == 0 {
		return errEmpty
	}
	if info.Size() > maxBoltFile {
		return damaged("it has %d bytes", info.Size())
	}
	return checkPages(f, uint64(info.Size()))
}

func checkPages(f io.ReaderAt, size uint64) error {
	m, err := newestMeta(f, size)
	if err != nil {
		return err
	}
	c := &boltChecker{f: f, pageSize: m.pageSize, pages: m.pages, seen: make([]uint64, m.pages/64+1)}
	last, err := c.checkTree(0, m.root, nil, nil)
	if err == nil && m.freelist != noFreelist {
		err = c.checkFreelist(m.freelist)
	}
	if err == nil && last == nil {
		err = errNoRecords
	}
	return err
}

// A boltMeta is the content of a meta page: the state of the database after a commit.
type boltMeta struct {
	pageSize, root, freelist, pages, commit uint64
}

// newestMeta returns the valid meta page of the last commit. The other one is invalid after a power cut during a commit.
func newestMeta(f io.ReaderAt, size uint64) (newest boltMeta, err error) {
	first, valid, err := readMeta(f, 0)
	if err != nil {
		return newest, err
	}
	for pos := uint64(1 << 10); !valid && pos <= 1<<24 && pos+metaSize < size; pos *= 2 { // the size of a page is only in a valid meta page
		if first, valid, err = readMeta(f, pos); err != nil {
			return newest, err
		}
	}
	if !valid {
		return newest, damaged("no meta page is valid")
	}
	pageSize := first.pageSize
	if pageSize < 1<<9 || pageSize > maxBoltPage || pageSize&(pageSize-1) != 0 {
		return newest, damaged("a page has %d bytes", pageSize)
	}
	found := false
	for _, pos := range []uint64{0, pageSize} {
		m, valid, err := readMeta(f, pos)
		if err != nil {
			return newest, err
		}
		if valid && (!found || m.commit > newest.commit) {
			newest, found = m, true
		}
	}
	if !found || newest.pageSize != pageSize {
		return newest, damaged("no meta page is valid")
	}
	if newest.pages > size/pageSize {
		return newest, damaged("it has %d bytes, less than %d pages", size, newest.pages)
	}
	return newest, nil
}

// readMeta reads a meta page. It returns false if the page is not a valid meta page, and an error if the page cannot be read.
func readMeta(f io.ReaderAt, pos uint64) (m boltMeta, valid bool, err error) {
	b := make([]byte, pageHeader+metaSize)
	if n, err := f.ReadAt(b, int64(pos)); n < len(b) {
		if err == io.EOF {
			return m, false, nil
		}
		return m, false, err
	}
	b = b[pageHeader:]
	sum := fnv.New64a()
	sum.Write(b[:metaSummed])
	if u32(b, 0) != boltMagic || u32(b, 4) != boltVersion || u64(b, metaSummed) != sum.Sum64() {
		return m, false, nil
	}
	return boltMeta{
		pageSize: uint64(u32(b, 8)), root: u64(b, 16), freelist: u64(b, 32), pages: u64(b, 40), commit: u64(b, 48),
	}, true, nil
}

// A boltChecker reads each page of a database at most once.
type boltChecker struct {
	f        io.ReaderAt
	pageSize uint64
	pages    uint64   // number of pages in use; greater page numbers are invalid
	seen     []uint64 // one bit for each page
	buffers  [][]byte // one for each level of the tree
}

// mark marks n pages as seen. A page that is used twice is an error.
func (c *boltChecker) mark(id, n uint64) error {
	if id < 2 || id >= c.pages || n > c.pages-id {
		return damaged("page %d does not exist", id)
	}
	for ; n > 0; n-- {
		if c.seen[id/64]&(1<<(id%64)) != 0 {
			return damaged("page %d is used twice", id)
		}
		c.seen[id/64] |= 1 << (id % 64)
		id++
	}
	return nil
}

// read reads a page with its overflow pages. The result is valid until the next page of the same level is read.
func (c *boltChecker) read(level int, id uint64) ([]byte, error) {
	if level >= maxBoltDepth {
		return nil, damaged("page %d: the tree is too deep", id)
	}
	for level >= len(c.buffers) {
		c.buffers = append(c.buffers, make([]byte, c.pageSize))
	}
	b := c.buffers[level][:c.pageSize]
	if err := c.mark(id, 1); err != nil {
		return nil, err
	}
	if _, err := c.f.ReadAt(b, int64(id*c.pageSize)); err != nil {
		return nil, readFailed(id, err)
	}
	if got := u64(b, 0); got != id {
		return nil, damaged("page %d has the number %d", id, got)
	}
	more := uint64(u32(b, 12))
	if more == 0 {
		return b, nil
	}
	if (more+1)*c.pageSize > maxBoltPage {
		return nil, damaged("page %d has %d overflow pages", id, more)
	}
	if err := c.mark(id+1, more); err != nil {
		return nil, err
	}
	b = append(b, make([]byte, more*c.pageSize)...)
	c.buffers[level] = b
	if _, err := c.f.ReadAt(b[c.pageSize:], int64((id+1)*c.pageSize)); err != nil {
		return nil, readFailed(id, err)
	}
	return b, nil
}

func readFailed(id uint64, err error) error {
	if err == io.EOF {
		return damaged("page %d is not complete", id)
	}
	return fmt.Errorf("page %d: %w", id, err)
}

// checkTree checks the pages below a page. All keys must be at least from and less than to. nil means no limit. It returns the greatest
// key.
func (c *boltChecker) checkTree(level int, id uint64, from, to []byte) (last []byte, err error) {
	b, err := c.read(level, id)
	if err != nil {
		return nil, err
	}
	if last, err = c.checkElements(level, b, from, to); err != nil {
		return nil, fmt.Errorf("%w (page %d)", err, id)
	}
	return last, nil
}

// checkElements checks the elements of a page, and the pages to which they refer.
func (c *boltChecker) checkElements(level int, b []byte, from, to []byte) (last []byte, err error) {
	kind, n := binary.NativeEndian.Uint16(b[8:]), int(binary.NativeEndian.Uint16(b[10:]))
	if kind != leafPage && kind != branchPage || kind == branchPage && n == 0 {
		return nil, damaged("a page of the kind %#x has %d elements", kind, n)
	}
	if pageHeader+n*elementSize > len(b) {
		return nil, damaged("%d elements do not fit in a page", n)
	}
	last = from
	for i := range n {
		e := element{b[pageHeader+i*elementSize:], kind == leafPage}
		key, value, ok := e.split()
		if !ok {
			return nil, damaged("an element exceeds its page")
		}
		order := bytes.Compare(last, key)
		if last != nil && (order > 0 || i > 0 && order == 0) || to != nil && bytes.Compare(key, to) >= 0 {
			return nil, damaged("the keys are not sorted")
		}
		last = key
		switch {
		case kind == branchPage:
			end := to
			if i+1 < n {
				next := element{b[pageHeader+(i+1)*elementSize:], false}
				if end, _, ok = next.split(); !ok {
					return nil, damaged("an element exceeds its page")
				}
			}
			greatest, err := c.checkTree(level+1, u64(e.b, 8), key, end)
			if err != nil {
				return nil, err
			}
			if greatest != nil {
				last = greatest
			}
		case u32(e.b, 0)&bucketLeaf != 0:
			if err := c.checkBucket(level+1, value); err != nil {
				return nil, err
			}
		}
	}
	return last, nil
}

// checkBucket checks a bucket. A small bucket is stored with the key, and has no page of its own.
func (c *boltChecker) checkBucket(level int, value []byte) error {
	const header = 16 // page number, sequence
	if len(value) < header {
		return damaged("a bucket has %d bytes", len(value))
	}
	if id := u64(value, 0); id != 0 {
		_, err := c.checkTree(level, id, nil, nil)
		return err
	}
	page := value[header:]
	if len(page) < pageHeader || level >= maxBoltDepth || binary.NativeEndian.Uint16(page[8:]) != leafPage {
		return damaged("a small bucket has no valid page")
	}
	_, err := c.checkElements(level, page, nil, nil)
	return err
}

// checkFreelist checks the list of free pages. A free page that is in use would be overwritten.
func (c *boltChecker) checkFreelist(id uint64) error {
	b, err := c.read(0, id)
	if err != nil {
		return err
	}
	if binary.NativeEndian.Uint16(b[8:]) != freelistPage {
		return damaged("page %d is not a list of free pages", id)
	}
	n, list := uint64(binary.NativeEndian.Uint16(b[10:])), b[pageHeader:]
	if n == manyEntries {
		if n, list = u64(list, 0), list[8:]; n > uint64(len(list)) {
			return damaged("the list of free pages has %d entries", n)
		}
	}
	if n*8 > uint64(len(list)) {
		return damaged("the list of free pages has %d entries", n)
	}
	for i := range n {
		if err := c.mark(u64(list, int(i)*8), 1); err != nil {
			return err
		}
	}
	return nil
}

// An element is an entry of a page: a key with its value, or with the number of a page. It begins at its own position and extends to the
// end of the page.
type element struct {
	b    []byte
	leaf bool
}

// split returns the key and the value of an element. It returns false if they are not within the page.
func (e element) split() (key, value []byte, ok bool) {
	pos, keySize, valueSize := uint64(u32(e.b, 0)), uint64(u32(e.b, 4)), uint64(0)
	if e.leaf {
		pos, keySize, valueSize = uint64(u32(e.b, 4)), uint64(u32(e.b, 8)), uint64(u32(e.b, 12))
	}
	if pos+keySize+valueSize > uint64(len(e.b)) {
		return nil, nil, false
	}
	return e.b[pos:][:keySize], e.b[pos+keySize:][:valueSize], true
}

func u32(b []byte, at int) uint32 { return binary.NativeEndian.Uint32(b[at:]) }

func u64(b []byte, at int) uint64 { return binary.NativeEndian.Uint64(b[at:]) }
