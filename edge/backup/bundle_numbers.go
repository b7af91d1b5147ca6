package backup

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// seenKey is the key in the database under which package agent/change/bundle stores the numbers.
const seenKey = "bundle.seen"

// numbers are the memory of a node that keeps it from older and failed bundles. Both the database and the record of bundles have these
// fields.
type numbers struct {
	Highest map[string]int64 `json:"highest,omitempty"`
	Signed  time.Time        `json:"signed,omitzero"`
	Failed  []string         `json:"failed,omitempty"` // digests
}

// A bundleName identifies a bundle for a person.
type bundleName struct {
	Name   string `json:"name"`
	Number int64  `json:"number"`
}

func parseNumbers(text []byte) (n numbers, err error) {
	if len(text) > 0 {
		err = json.Unmarshal(text, &n)
	}
	if err == nil && (len(n.Highest) > maxListed || len(n.Failed) > maxListed) {
		err = fmt.Errorf("more than %d names", maxListed)
	}
	if err != nil {
		err = fmt.Errorf("the highest numbers of bundles: %w", err)
	}
	return n, err
}

// raise raises the numbers to the numbers in another copy.
func (n *numbers) raise(other numbers) {
	if other.Signed.After(n.Signed) {
		n.Signed = other.Signed.UTC()
	}
	n.Highest = maps.Clone(n.Highest)
	if n.Highest == nil {
		n.Highest = map[string]int64{}
	}
	for name, number := range other.Highest {
		n.Highest[name] = max(n.Highest[name], number)
	}
	for _, digest := range other.Failed {
		if !slices.Contains(n.Failed, digest) {
			n.Failed = append(n.Failed, digest)
		}
	}
}
