package twin

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// unknownHardware is the hardware of a machine without serial numbers and network cards.
const unknownHardware = "-"

// maxNameClaim is the maximum length of a claim, in bytes.
const maxNameClaim = 80

// A nameClaim is the text that a machine writes into the Lease when it uses the node's name. It identifies the hardware and the boot.
type nameClaim struct {
	hardware string // hash of the machine's first mark, or unknownHardware
	boot     string // hash of its boot ID
	term     uint64 // number of takeovers by a user
	since    uint64 // version of the Lease at its first read in this boot
}

func (c nameClaim) String() string {
	return fmt.Sprintf("%s.%s.%d.%d", c.hardware, c.boot, c.term, c.since)
}

// parseNameClaim parses the value of the annotation. It returns false if the value is not a valid claim.
func parseNameClaim(s string) (c nameClaim, ok bool) {
	parts := strings.Split(s[:min(len(s), maxNameClaim+1)], ".")
	if len(s) > maxNameClaim || len(parts) != 4 || !isHash(parts[1]) || parts[0] != unknownHardware && !isHash(parts[0]) {
		return nameClaim{}, false
	}
	term, err := strconv.ParseUint(parts[2], 10, 32) // 32 bits suffice, because each term is a takeover by a user
	since, err2 := strconv.ParseUint(parts[3], 10, 64)
	return nameClaim{hardware: parts[0], boot: parts[1], term: term, since: since}, err == nil && err2 == nil
}

// hasPriorityOver reports whether the machine with this claim keeps the name if another machine has the other claim.
func (c nameClaim) hasPriorityOver(o nameClaim) bool {
	if c.term != o.term {
		return c.term > o.term
	}
	if c.since != o.since {
		return c.since < o.since
	}
	return c.boot < o.boot
}

// hashDigits is the number of hexadecimal digits of a hash in a claim.
const hashDigits = 10

func isHash(s string) bool {
	return len(s) == hashDigits && strings.Trim(s, "0123456789abcdef") == ""
}

func hashOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:hashDigits/2])
}

// Marks identifies a machine. It contains hashes of its serial numbers and of the permanent addresses of its network cards.
type Marks struct {
	Serials []string `json:"serials,omitempty"`
	Cards   []string `json:"cards,omitempty"`
}

func marksOf(serials, cards []string) Marks { return Marks{hashesOf(serials), hashesOf(cards)} }

func hashesOf(marks []string) (out []string) {
	for _, s := range marks {
		out = append(out, hashOf(s))
	}
	return out
}

// hardwareHash returns the value that identifies the machine in a claim.
func (m Marks) hardwareHash() string {
	switch {
	case len(m.Serials) > 0:
		return m.Serials[0]
	case len(m.Cards) > 0:
		return m.Cards[0]
	}
	return unknownHardware
}

// differsFrom reports whether two sets of marks certainly belong to different machines. If they cannot be compared, it returns false.
func (m Marks) differsFrom(o Marks) bool {
	a, b := m.Serials, o.Serials
	if len(a) == 0 || len(b) == 0 {
		a, b = m.Cards, o.Cards
	}
	return len(a) > 0 && len(b) > 0 && !slices.ContainsFunc(a, func(s string) bool { return slices.Contains(b, s) })
}

// maxCards is the maximum number of network cards in Marks.
const maxCards = 16

// add combines these marks with the marks from a later reading on the same machine. A card may appear late, or be missing for some time.
func (m Marks) add(now Marks) Marks {
	if len(now.Serials) > 0 {
		m.Serials = now.Serials
	}
	for _, s := range now.Cards {
		if !slices.Contains(m.Cards, s) {
			m.Cards = append(slices.Clip(m.Cards), s)
		}
	}
	m.Cards = m.Cards[max(0, len(m.Cards)-maxCards):]
	return m
}
