package exposition

import (
	"bytes"
	"slices"
)

// A block is what all lines of one Subject have between their braces. A page has each of them
// some fifty times, so how it is packed is found out once:
//
//	name{ block , more } value time
//
// Its name, its value and its time are compared with those of the line before.
type block struct {
	text []byte
	at   int        // where in the page it was written last; 0: not yet
	rest []byte     // what followed it then
	ways [6]stencil // how to pack it
	next int        // of ways to be made anew
}

// A stencil is how a block is packed after two others, the newest first: what it has of them,
// and of its own beginning, as matches, and the rest as bits that are ready. Its steps are
// those of the page from one to another.
type stencil struct {
	after    [2]*block
	from, to int32 // the same: it is not made
}

// Steps are those of all stencils of a page and of those before with the same blocks, and their codes, 56 bits a word.
type steps struct {
	list  []step
	words []uint64
}

// A step packs n bytes of a block, which begin at. from is the block that has them at off:
// one of those before, or the block itself; of what none has, off is where the codes begin.
type step struct {
	at, n, off, bits int32
	from             int8
}

// Where the bytes of a step are from, but for the blocks before: 0 and 1.
const (
	fromItself  = 2
	fromNowhere = 3
)

// stencil gives the one for a block after two others, either of which may be nil.
func (b *block) stencil(s *steps, after [2]*block) *stencil {
	for i := range b.ways {
		if w := &b.ways[i]; w.from < w.to && w.after == after {
			return w
		}
	}
	w := &b.ways[b.next]
	b.next = (b.next + 1) % len(b.ways)
	w.after, w.from = after, int32(len(s.list))
	s.make(b.text, after)
	w.to = int32(len(s.list))
	return w
}

// beginBlocks begins another page with n blocks, of which label appends the texts. As long as the
// texts are those of the page before, as most often, the stencils are too.
func (p *page) beginBlocks(n int, label func(i int, to []byte) []byte) {
	same := n == len(p.blocks) && len(p.steps.list) <= maxSteps*n
	p.blocks = slices.Grow(p.blocks[:0], n)[:n]
	begun := len(p.b)
	for i := range p.blocks {
		b := &p.blocks[i]
		b.at = 0
		p.b = label(i, p.b[:begun])
		if text := p.b[begun:]; !bytes.Equal(text, b.text) {
			b.text, same = append(b.text[:0], text...), false
		}
	}
	p.b = p.b[:begun]
	if same {
		return
	}
	p.steps = steps{p.steps.list[:0], p.steps.words[:0]}
	for i := range p.blocks {
		p.blocks[i].ways = [len(p.blocks[i].ways)]stencil{}
	}
}

// reach is how far back a family begins to copy what the family before had. It is not all of
// maxDistance: from line to line it is farther, if the name of the family is longer.
const reach = maxDistance - maxDistance/16

// farthest is which of the first n blocks is the farthest back within reach; 0: none is. In a family
// that begins with it, and goes on in the order of the one before, the blocks that follow are about
// as far back, and are copied as a whole until the family's end: of 100 pods more than half. In the
// same order each time none would be, as a family is longer than maxDistance.
func (p *page) farthest(n int) (first int) {
	now := p.sent + len(p.b)
	farthest := now
	for i := range n {
		if at := p.blocks[i].at; at > 0 && at < farthest && now-at <= reach {
			first, farthest = i, at
		}
	}
	return first
}

// maxSteps bounds how many there are, for each block, before all stencils are made anew.
const maxSteps = 100

// make compares piece by piece, each of which ends with a quote: all blocks have the same
// labels in the same order.
func (s *steps) make(text []byte, after [2]*block) {
	const long = 16
	at, starts, begun := 0, [2]int{}, len(s.list)
	for at < len(text) {
		end := pieceEnd(text, at)
		best, from, off := 0, int8(fromNowhere), 0
		for i, other := range after {
			if other == nil {
				continue
			}
			e := pieceEnd(other.text, starts[i])
			if n := sameUpTo(text[at:end], other.text[starts[i]:e]); n > best {
				best, from, off = n, int8(i), starts[i]
			}
			starts[i] = e
		}
		if end-at > long && best < end-at {
			if i := bytes.Index(text[:at], text[at:end]); i >= 0 {
				best, from, off = end-at, fromItself, i
			}
		}
		if best >= minMatch || best > 0 && s.joins(begun, at, from, off) {
			s.take(begun, at, best, from, off)
		} else {
			best = 0
		}
		if at+best < end {
			s.take(begun, at+best, end-at-best, fromNowhere, 0)
		}
		at = end
	}
	for i := begun; i < len(s.list); i++ {
		if one := &s.list[i]; one.from == fromNowhere {
			one.off = int32(len(s.words))
			s.words, one.bits = ready(s.words, text[one.at:one.at+one.n])
		}
	}
}

// joins says whether bytes go on with what the last step of those from begun on takes.
func (s *steps) joins(begun, at int, from int8, off int) bool {
	if len(s.list) == begun {
		return false
	}
	last := &s.list[len(s.list)-1]
	return last.from == from && (from == fromNowhere || int(last.at-last.off) == at-off)
}

func (s *steps) take(begun, at, n int, from int8, off int) {
	if s.joins(begun, at, from, off) {
		s.list[len(s.list)-1].n += int32(n)
		return
	}
	s.list = append(s.list, step{at: int32(at), n: int32(n), off: int32(off), from: from})
}

// pieceEnd is where the piece that begins at ends.
func pieceEnd(text []byte, at int) int {
	if n := bytes.IndexByte(text[at:], '"'); n >= 0 {
		return at + n + 1
	}
	return len(text)
}

// ready makes the codes of bytes.
func ready(to []uint64, text []byte) (words []uint64, n int32) {
	c := common()
	var word uint64
	fill := 0
	for _, b := range text {
		s := c.symbol[b]
		word |= uint64(s.code) << fill
		if fill += int(s.n); fill >= 56 {
			to = append(to, word&(1<<56-1))
			fill -= 56
			word = uint64(s.code) >> (int(s.n) - fill)
		}
		n += int32(s.n)
	}
	return append(to, word), n
}

// ready writes codes that are made, n bits.
func (p *packer) ready(words []uint64, n int) {
	p.drain()
	for i := 0; n > 0; i++ {
		take := min(n, 56)
		p.acc |= words[i] << p.n
		p.n += uint(take)
		n -= take
		p.drain()
	}
}

// An entry is where the parts of a line begin in a text, and where it ends.
type entry [6]int

// The parts of a line.
const (
	partName = iota
	partBlock
	partMore
	partValue
	partTime
	partEnd
)

// entry packs a line of a page, of which text is the end and e where its parts are.
func (p *packer) entry(text []byte, e *entry, b *block, s *steps) {
	last := &p.last[0]
	if from := last[partName]; last[partBlock]-from == e[partBlock]-e[partName] && bytes.Equal(text[from:last[partBlock]], text[e[partName]:e[partBlock]]) {
		p.same(text, e[partName], e[partBlock]-e[partName], e[partName]-from)
	} else {
		p.part(text, e, partName)
	}
	at, done := p.size+e[partBlock], e[partMore]
	if b.at > 0 && at-b.at <= maxDistance {
		n := sameUpTo(text[done:e[partEnd]], b.rest)
		p.same(text, 0, len(b.text)+n, at-b.at)
		done += n
	} else {
		p.stencil(text, e[partBlock], s, b.stencil(s, p.blocks))
	}
	if p.blocks[0] != b {
		p.blocks[1], p.blocks[0] = p.blocks[0], b
	}
	b.rest = append(b.rest[:0], text[e[partMore]:]...)
	if from := last[partMore]; done == e[partMore] && last[partEnd]-from == e[partEnd]-done && bytes.Equal(text[from:last[partEnd]], text[done:e[partEnd]]) {
		p.same(text, done, e[partEnd]-done, done-from)
		done = e[partEnd]
	}
	for which := partMore; which < partEnd && done < e[partEnd]; which++ {
		if e[which] >= done {
			p.part(text, e, which)
		} else if done < e[which+1] {
			p.own(text, done, e[which+1])
		}
	}
	p.last[1], p.last[0] = p.last[0], *e
}

// stencil packs a block that begins in text by one of all stencils.
func (p *packer) stencil(text []byte, begun int, all *steps, w *stencil) {
	list := all.list[w.from:w.to]
	for i := range list {
		s := &list[i]
		at, distance := int(s.at), int(s.at-s.off)
		if s.from < fromItself {
			distance = p.size + begun + at - w.after[s.from].at - int(s.off)
		}
		switch {
		case s.from == fromNowhere:
			p.flushMatch(text, 0)
			p.ready(all.words[s.off:], int(s.bits))
		case distance > maxDistance: // there were very many lines of one Subject between
			p.own(text, begun+at, begun+at+int(s.n))
		default:
			p.same(text, 0, int(s.n), distance)
		}
	}
}

// part packs a part of a line after the same part of one of the two before, those that are
// still in the text.
func (p *packer) part(text []byte, e *entry, which int) {
	at, end, n, distance := e[which], e[which+1], 0, 0
	for i := range p.last {
		from, to := p.last[i][which], p.last[i][which+1]
		goesOn := p.match.length > 0 && p.match.distance == at-from
		if from == to || !goesOn && end-at < minMatch {
			continue
		}
		if s := sameUpTo(text[at:end], text[from:to]); s > n && (goesOn || s >= minMatch) {
			n, distance = s, at-from
		}
		if n == end-at {
			break
		}
	}
	p.same(text, 0, n, distance)
	p.own(text, at+n, end)
}
