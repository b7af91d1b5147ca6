package figures

import (
	"bufio"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ownModule is the prefix of the names of islet's functions.
const ownModule = "github.com/islet-edge/islet/"

// A Heap contains the bytes in use by owner. The owner of an object is the package of islet that is innermost in the stack of the
// allocation. If this package called another module, the owner is "package (module)". An object that no function of islet has allocated
// belongs to the package of the innermost function.
type Heap map[string]int64

// Sum returns the bytes in use.
func (h Heap) Sum() (sum int64) {
	for _, n := range h {
		sum += n
	}
	return sum
}

// SortOwners returns the owners of a heap. The owner of the most bytes is the first.
func SortOwners(h Heap) []string {
	var all []string
	for o := range h {
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(cmp.Compare(h[b], h[a]), cmp.Compare(a, b)) })
	return all
}

// ParseHeap reads a heap profile of net/http/pprof in its text format (debug=1). The program must have recorded every allocation
// (GODEBUG=memprofilerate=1).
func ParseHeap(text string) (Heap, error) {
	first, text, _ := strings.Cut(text, "\n")
	if !strings.HasPrefix(first, "heap profile: ") {
		return nil, fmt.Errorf("no heap profile: %.100q", first)
	}
	h := Heap{}
	var bytes int64
	var stack []string // packages of the functions, the innermost first
	add := func() {
		if bytes > 0 && len(stack) > 0 {
			h[ownerOf(stack)] += bytes
		}
		bytes, stack = 0, nil
	}
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "#\t"): // #	0x4a8f2b	package.function+0x2b	file:line
			if f := strings.Split(line, "\t"); len(f) >= 3 {
				stack = append(stack, packageOf(f[2]))
			}
		case strings.Contains(line, "] @ "): // 1: 32 [1: 32] @ 0x4a8f2b
			add()
			_, size, _ := strings.Cut(line, ": ")
			size, _, _ = strings.Cut(size, " ")
			n, err := strconv.ParseInt(size, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", line, err)
			}
			bytes = n
		case strings.HasPrefix(line, "# runtime.MemStats"):
			add()
			return h, nil
		}
	}
	add()
	return h, lines.Err()
}

// packageOf returns the package of a function in a profile, such as k8s.io/api/core/v1.(*Pod).Unmarshal+0x1c.
func packageOf(function string) string {
	at := strings.LastIndexByte(function, '/') + 1
	name, _, _ := strings.Cut(function[at:], ".")
	return function[:at] + name
}

func ownerOf(stack []string) string {
	for i, p := range stack {
		own, ok := strings.CutPrefix(p, ownModule)
		switch {
		case !ok:
		case i == 0:
			return own
		default:
			if callee := stack[i-1]; strings.Contains(callee, ".") { // not in Go's library
				return own + " (" + callee + ")"
			}
			return own
		}
	}
	return stack[0]
}
