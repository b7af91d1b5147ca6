package spelling

import (
	"iter"
	"strings"
)

// maxWord is the maximum length of a word that is compared, in bytes. The time of Distance grows with the square of the length.
const maxWord = 64

// Nearest returns the candidate that is most similar to a word, or "" if no candidate is similar enough. Of equally similar candidates
// it returns the first. A third of the letters may be wrong, but at most two. The comparison ignores case.
func Nearest(word string, candidates iter.Seq[string]) string {
	if word == "" || len(word) > maxWord {
		return ""
	}
	best, least := "", min(2, (len(word)+1)/3)+1
	for c := range candidates {
		if len(c) > maxWord || c == "" {
			continue
		}
		if d := Distance(strings.ToLower(word), strings.ToLower(c)); d < least {
			best, least = c, d
		}
	}
	return best
}

// Distance returns the minimum number of bytes that must be added, removed, changed or swapped with their neighbour to turn a into b.
func Distance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
