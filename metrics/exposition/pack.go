package exposition

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"math/bits"
)

// A packer makes gzip of lines that resemble the line before, as those of a page of figures
// do, in a tenth of the time of a general compressor, to the same size and with hardly any
// memory of its own: of each line it looks only at the line before, quote by quote, and at the
// quoted texts before in the same line. Whatever is written can be unpacked; other text is
// only not made much smaller.
// https://www.rfc-editor.org/rfc/rfc1951 https://www.rfc-editor.org/rfc/rfc1952
type packer struct {
	out   io.Writer
	b     []byte // what is not sent yet
	acc   uint64 // bits that are no byte yet
	n     uint
	sum   uint32 // of the text
	size  int    // of the text
	code  *codes
	match struct{ length, distance int } // not written yet

	now    *cut           // the line that is being written
	before [2]*cut        // the newest first
	blocks [2]*block      // of the entries before, the newest first
	last   [2]entry       // in the text that is not counted yet
	seen   [1 << 11]int32 // by their hash, where quoted texts of lines begin in what is being written
}

// maxMatch and maxDistance are DEFLATE's.
const (
	minLength   = 3
	minMatch    = 4 // a shorter one is not worth it
	maxMatch    = 258
	maxDistance = 32 << 10
)

// packers are for the next page.
var packers spare[packer]

// begin begins a page to out.
func (p *packer) begin(out io.Writer) {
	if p.b == nil {
		p.b, p.now, p.before = make([]byte, 0, part+part/8), new(cut), [2]*cut{new(cut), new(cut)}
	}
	*p = packer{out: out, b: append(p.b[:0], 0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255), code: common(), now: p.now, before: p.before}
	p.bits(0b101, 3) // the last block, with codes of its own
	p.code.write(p)
}

// Write packs text, best as whole lines. The error is the writer's below.
func (p *packer) Write(text []byte) (int, error) {
	p.pack(text)
	return len(text), p.count(text)
}

// count counts text that was packed, and sends what there is, if that is enough.
func (p *packer) count(text []byte) error {
	p.flushMatch(text, len(text))
	p.sum, p.size, p.last = crc32.Update(p.sum, crc32.IEEETable, text), p.size+len(text), [2]entry{}
	if len(p.b) < part {
		return nil
	}
	return p.send()
}

// pack packs text without counting it.
func (p *packer) pack(text []byte) {
	p.before[0].n, p.before[1].n = 0, 0
	for at := 0; at < len(text); {
		end := len(text)
		if i := bytes.IndexByte(text[at:], '\n'); i >= 0 {
			end = at + i + 1
		}
		p.now.line(text, at, end)
		p.line(text, at, end)
		p.now, p.before[0], p.before[1] = p.before[1], p.now, p.before[0]
		at = end
	}
	p.flushMatch(text, len(text))
}

// Close ends the page.
func (p *packer) Close() error {
	p.symbol(endOfBlock)
	p.drain()
	for p.bits(0, 7); p.n >= 8; p.n -= 8 { // the last byte is whole then
		p.b, p.acc = append(p.b, byte(p.acc)), p.acc>>8
	}
	p.b = binary.LittleEndian.AppendUint32(p.b, p.sum)
	p.b = binary.LittleEndian.AppendUint32(p.b, uint32(p.size))
	err := p.send()
	p.out = nil
	return err
}

func (p *packer) send() error {
	_, err := p.out.Write(p.b)
	p.b = p.b[:0]
	return err
}

// A cut is a line and its pieces: it is cut after each quote, and the rest after each space.
type cut struct {
	at   int
	n    int
	ends [24]int // of pieces; what there is beyond is one with the last
}

func (c *cut) line(text []byte, at, end int) {
	c.at, c.n = at, 0
	for at < end && c.n < len(c.ends)-1 {
		n := bytes.IndexByte(text[at:end], '"')
		if n < 0 {
			n = bytes.IndexByte(text[at:end], ' ')
		}
		if n < 0 {
			break
		}
		at += n + 1
		c.ends[c.n], c.n = at, c.n+1
	}
	if at < end {
		c.ends[c.n], c.n = end, c.n+1
	}
}

// piece is where the i-th begins and ends.
func (c *cut) piece(i int) (at, end int) {
	switch {
	case i >= c.n:
		return 0, 0
	case i == 0:
		return c.at, c.ends[0]
	}
	return c.ends[i-1], c.ends[i]
}

// line packs a line. A piece is what is the same as in the same piece of one of the two lines
// before, as lines of pods and of containers take turns, and literals. A long one may be the
// end of another before in the same line, as the ID of a container is of its cgroup's path.
func (p *packer) line(text []byte, at, end int) {
	const long = 16
	if from, to, distance := p.again(text, at, end); distance > 0 {
		first, last := p.before[0].piece(0)
		same := sameUpTo(text[at:from], text[first:last])
		p.same(text, at, same, at-first)
		p.own(text, at+same, from)
		p.same(text, from, to-from, distance)
		p.own(text, to, end)
		return
	}
	begun := at
	for i := 0; i < p.now.n; i++ {
		_, end := p.now.piece(i)
		same, distance := 0, 0
		for _, l := range p.before {
			first, last := l.piece(i)
			if s := sameUpTo(text[at:end], text[first:last]); s > same {
				same, distance = s, at-first
			}
		}
		if end-at > long && at+same < end {
			if i := bytes.Index(text[begun:at], text[at:end]); i >= 0 {
				same, distance = end-at, at-begun-i
			}
		}
		p.same(text, at, same, distance)
		p.own(text, at+same, end)
		at = end
	}
}

// again finds the quoted texts of a line, from the first quote to the last, as a whole in
// another that is not too far away: that of the same container in the family before. A
// distance of 0 means that there is none.
func (p *packer) again(text []byte, at, end int) (from, to, distance int) {
	from, to = bytes.IndexByte(text[at:end], '"'), bytes.LastIndexByte(text[at:end], '"')
	if from < 0 || to-from < 32 {
		return 0, 0, 0
	}
	from, to = at+from, at+to+1
	seen := &p.seen[crc32.Update(0, castagnoli, text[from:to])%uint32(len(p.seen))]
	other := int(*seen)
	*seen = int32(from)
	if other >= from || from-other > maxDistance || !bytes.Equal(text[other:other+to-from], text[from:to]) {
		return 0, 0, 0 // of what was written before, or of another hash
	}
	return from, to + sameUpTo(text[to:end], text[other+to-from:]), from - other
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// own packs text that is as none before.
func (p *packer) own(text []byte, from, to int) {
	if from < to {
		p.flushMatch(text, from)
		p.literals(text[from:to])
	}
}

// same packs length bytes at text[at] that are the same as distance before.
func (p *packer) same(text []byte, at, length, distance int) {
	if length == 0 {
		return
	}
	if p.match.length > 0 && p.match.distance != distance {
		p.flushMatch(text, at)
	}
	p.match.length, p.match.distance = p.match.length+length, distance
}

// flushMatch writes what same put off, which ends at end.
func (p *packer) flushMatch(text []byte, end int) {
	length, distance := p.match.length, p.match.distance
	p.match.length = 0
	for at := end - length; length > 0; {
		n := min(length, maxMatch)
		if rest := length - n; rest > 0 && rest < minMatch {
			n -= minMatch // leave enough for another
		}
		if n < minMatch || distance > maxDistance {
			p.literals(text[at:end])
			return
		}
		p.pair(n, distance)
		at, length = at+n, length-n
	}
}

func (p *packer) literals(text []byte) {
	acc, n, b := p.acc, p.n, p.b
	for i, c := range text {
		if i%3 == 0 { // three codes are 45 bits at most
			b = binary.LittleEndian.AppendUint64(b, acc)[:len(b)+int(n/8)]
			acc, n = acc>>(n&^7), n%8
		}
		s := p.code.symbol[c]
		acc |= uint64(s.code) << n
		n += uint(s.n)
	}
	p.acc, p.n, p.b = acc, n, b
}

// pair writes a length and a distance: the more a power of two is, the fewer codes there are.
func (p *packer) pair(length, distance int) {
	l := p.code.length[length-minLength]
	d, extra := uint(distance-1), uint(0)
	if d >= 4 {
		extra = uint(bits.Len(d)) - 2
	}
	s := p.code.distance[(2*extra+d>>extra)&31]
	p.drain()
	p.acc |= (uint64(l.bits) | (uint64(s.code)|uint64(d&(1<<extra-1))<<s.n)<<l.n) << p.n
	p.n += uint(l.n) + uint(s.n) + extra // 7 + 20 + 28 at most
}

func (p *packer) symbol(s int) { p.bits(uint64(p.code.symbol[s].code), uint(p.code.symbol[s].n)) }

// bits adds the n lowest bits of v, at most 15.
func (p *packer) bits(v uint64, n uint) {
	if p.n >= 48 {
		p.drain()
	}
	p.acc |= v << p.n
	p.n += n
}

// drain writes the bits that are whole bytes; fewer than 8 are left.
func (p *packer) drain() {
	whole := p.n / 8
	p.b = binary.LittleEndian.AppendUint64(p.b, p.acc)[:len(p.b)+int(whole)]
	p.acc, p.n = p.acc>>(8*whole), p.n%8
}

// sameUpTo is how many bytes are the same at the beginning of both.
func sameUpTo(a, b []byte) int {
	n := min(len(a), len(b))
	i := 0
	for ; i+8 <= n; i += 8 {
		if x := binary.LittleEndian.Uint64(a[i:]) ^ binary.LittleEndian.Uint64(b[i:]); x != 0 {
			return i + bits.TrailingZeros64(x)/8
		}
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}
