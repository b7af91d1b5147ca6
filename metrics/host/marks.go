package host

import (
	"net"
	"path/filepath"
	"slices"
	"strings"
)

// serialFiles hold what the maker of a board, or of a virtual machine, wrote into its firmware.
var serialFiles = []string{
	"sys/class/dmi/id/product_uuid", "sys/class/dmi/id/product_serial", "sys/class/dmi/id/board_serial",
	"proc/device-tree/serial-number", "proc/device-tree/vm,uuid",
}

// Marks returns what tells this machine from every other one: serial numbers of the firmware, and
// the permanent addresses of Ethernet cards. Both are empty on a machine that has none, such as a
// container. Their order is the same at each call, and one may be there twice. Addresses that
// software chose are left out, and so is what a maker wrote in place of a serial number. The files
// are read at each call: a card may appear long after the boot.
func (h *Host) Marks() (serials, cards []string) {
	for _, file := range serialFiles {
		if s := strings.ToLower(h.line(file)); !placeholder(s) {
			serials = append(serials, s)
		}
	}
	found, _ := filepath.Glob(h.path("sys/class/net/*/device")) // the pattern is right
	for _, device := range found {
		card := strings.TrimPrefix(filepath.Dir(device), h.root)
		mac, err := net.ParseMAC(h.line(card + "/address"))
		// addr_assign_type 0 is NET_ADDR_PERM, type 1 ARPHRD_ETHER.
		if err == nil && h.line(card+"/addr_assign_type") == "0" && h.line(card+"/type") == "1" && strings.Trim(mac.String(), "0:") != "" {
			cards = append(cards, mac.String())
		}
	}
	return serials, cards
}

// placeholders are what firmware has in place of a serial number, or of a part of it.
var placeholders = []string{
	"to be filled", "o.e.m", "default", "not ", "none", "unknown", "n/a", "serial", "invalid", "empty", "0123456789", "123456789", "03000200-0400-0500-0006-000700080009",
}

// placeholder reports whether a serial number in lower case is none: boards of one maker share it.
func placeholder(s string) bool {
	digits := strings.Trim(s, "-_. ")
	if len(digits) < 4 || strings.Trim(digits, digits[:1]+"-") == "" {
		return true
	}
	return slices.ContainsFunc(placeholders, func(p string) bool { return strings.Contains(s, p) })
}
