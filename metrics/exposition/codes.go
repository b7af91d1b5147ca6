package exposition

import (
	"container/heap"
	"math/bits"
	"sync"
)

// endOfBlock is DEFLATE's symbol for it; those before are bytes, those after lengths.
const endOfBlock = 256

// A code is n bits, the first the lowest.
type code struct {
	code uint16
	n    uint8
}

// codes are those of one block: how often what comes up in pages of figures is known, so that
// nothing needs to be counted first.
type codes struct {
	symbol   [286]code
	distance [32]code // the last two are not DEFLATE's
	length   [maxMatch - minLength + 1]run
}

// A run is the code of a length with the bits that follow it, n in all.
type run struct {
	bits uint32
	n    uint8
}

// lengths makes those of all lengths from the codes of their symbols.
func (c *codes) lengths() {
	for i := range c.length {
		symbol, extra := 257+i, 0
		if i >= 8 {
			extra = bits.Len(uint(i)) - 3
			symbol = 257 + 4*extra + i>>extra
		}
		if i == len(c.length)-1 {
			symbol, extra = 285, 0
		}
		s := c.symbol[symbol]
		c.length[i] = run{uint32(s.code) | uint32(i&(1<<extra-1))<<s.n, s.n + uint8(extra)}
	}
}

// common makes the codes once.
var common = sync.OnceValue(func() *codes {
	// The sum of weights bounds how long codes get: below the 18th number of Fibonacci, 2584,
	// no code is longer than DEFLATE's 15 bits.
	var weight [286]int
	for i := range weight {
		weight[i] = 1
	}
	for _, some := range []struct {
		of     string
		weight int
	}{{"ghijklmnopqrstuvwxyz", 8}, {" #_=:.,{}\n/", 7}, {"0123456789abcdef", 90}, {"-", 50}, {`"`, 70}} { // most are identifiers in hexadecimal
		for _, c := range some.of {
			weight[c] = some.weight
		}
	}
	for i := 257; i < 286; i++ {
		weight[i] = 6
	}
	for _, i := range []int{261, 262, 271, 276} {
		weight[i] = 30
	}
	var far [30]int
	for i := range far {
		far[i] = 2
		if i > 12 {
			far[i] = 15
		}
		if i > 12 && i < 17 { // a line is 128 to 384 bytes long
			far[i] = 100
		}
	}
	c := new(codes)
	assign(weight[:], c.symbol[:])
	assign(far[:], c.distance[:len(far)])
	c.lengths()
	return c
})

// write tells the codes, without making that shorter: 160 bytes.
func (c *codes) write(p *packer) {
	p.bits(286-257, 5)
	p.bits(30-1, 5)
	p.bits(19-4, 4)
	for i := range 19 { // a length is written in 4 bits; the first three of these would be repetitions
		n := uint64(4)
		if i < 3 {
			n = 0
		}
		p.bits(n, 3)
	}
	for _, one := range [][]code{c.symbol[:], c.distance[:30]} {
		for _, s := range one {
			p.bits(uint64(bits.Reverse8(s.n)>>4), 4)
		}
	}
}

// assign gives each symbol a code by Huffman's way, the shorter the heavier it is.
func assign(weight []int, to []code) {
	parent := make([]int, 2*len(weight)-1)
	h := make(nodes, len(weight))
	for i, w := range weight {
		h[i] = node{w, i}
	}
	heap.Init(&h)
	for next := len(weight); len(h) > 1; next++ {
		a := heap.Pop(&h).(node)
		parent[a.id], parent[h[0].id] = next, next
		h[0] = node{a.weight + h[0].weight, next}
		heap.Fix(&h, 0)
	}
	var count, first [17]int
	root := len(parent) - 1
	for i := range weight {
		n := 0
		for at := i; at != root; at = parent[at] {
			n++
		}
		to[i].n = uint8(n)
		count[n]++
	}
	for n := 1; n < 17; n++ {
		first[n] = (first[n-1] + count[n-1]) << 1
	}
	for i := range to {
		n := to[i].n
		to[i].code = bits.Reverse16(uint16(first[n])) >> (16 - n)
		first[n]++
	}
}

// A node of the tree that codes are made of.
type node struct{ weight, id int }

type nodes []node

func (h nodes) Len() int { return len(h) }
func (h nodes) Less(i, j int) bool {
	return h[i].weight < h[j].weight || h[i].weight == h[j].weight && h[i].id < h[j].id
}
func (h nodes) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *nodes) Push(x any) { *h = append(*h, x.(node)) }

// Pop implements heap.Interface.
func (h *nodes) Pop() any {
	old := *h
	n := old[len(old)-1]
	*h = old[:len(old)-1]
	return n
}
