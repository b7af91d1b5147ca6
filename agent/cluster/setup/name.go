package setup

import (
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Parts of a name that differ from board to board.
const (
	serialPart = "{serial}"
	macPart    = "{mac}"
)

// errNoCard means that the name needs a network card that the kernel has not found yet.
var errNoCard = errors.New("{mac} in the name needs a network card with a permanent address, and this machine has none yet")

// checkName checks the name with example values.
func (c *checker) checkName() {
	name := c.s.board.Name
	if name == "" {
		return
	}
	example := strings.NewReplacer(serialPart, "10000000abcdef01", macPart, "dca632000001").Replace(name)
	if strings.ContainsAny(example, "{}") {
		c.add("name", "only %s and %s may be in braces", serialPart, macPart)
	} else if e := validation.IsDNS1123Subdomain(example); len(e) > 0 {
		c.add("name", "is not a valid node name: %.200s", e[0])
	}
}

// nodeName returns the name of the node. It is empty if the node has the machine's host name. The parameter marks returns the machine's
// serial numbers and the addresses of its network cards.
func (s *source) nodeName(marks func() (serials, cards []string)) (string, error) {
	name := s.board.Name
	if name == "" || !strings.Contains(name, "{") {
		if name == "" {
			name = s.certName
		}
		return name, nil
	}
	serials, cards := marks()
	c := &checker{s: s}
	if strings.Contains(name, serialPart) {
		if len(serials) == 0 {
			c.add("name", "this machine has no serial number for %s", serialPart)
			return "", errors.Join(c.errs...)
		}
		name = strings.ReplaceAll(name, serialPart, nameOf(serials[0]))
	}
	if strings.Contains(name, macPart) {
		if len(cards) == 0 {
			return "", errNoCard
		}
		name = strings.ReplaceAll(name, macPart, strings.ReplaceAll(cards[0], ":", ""))
	}
	if e := validation.IsDNS1123Subdomain(name); len(e) > 0 {
		c.add("name", "%.300q is not a valid node name: %.200s", name, e[0])
	} else if s.certName != "" && s.certName != name {
		c.add("name", "it is %q here, and the certificate is for %q", name, s.certName)
	}
	return name, errors.Join(c.errs...)
}

// nameOf returns a serial number as a part of a name: small letters, digits, and dashes between them.
func nameOf(serial string) string {
	return strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(serial)), "-")
}
