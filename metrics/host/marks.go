package host

import (
	"net"
	"path/filepath"
	"slices"
	"strings"
)

// serialFiles contain the serial numbers that the manufacturer of a board or virtual machine wrote
// into its firmware.
var serialFiles = []string{
	"sys/class/dmi/id/product_uuid", "sys/class/dmi/id/product_serial", "sys/class/dmi/id/board_serial",
	"proc/device-tree/serial-number", "proc/device-tree/vm,uuid",
}

// Marks returns facts that distinguish this machine from every other one: serial numbers of the
// firmware, and permanent addresses of Ethernet cards. Both are empty on a machine that has none,
// such as a container. The order is the same in each call, and a value may occur twice. Addresses
// set by software and placeholders for serial numbers are left out. The files are read in each
// call, because a card may appear long after the boot.
func (h *Host) Marks() (serials, cards []string) {
	for _, file := range serialFiles {
		if s := strings.ToLower(h.line(file)); !placeholder(s) {
			serials = append(serials, s)
		}
	}
	found, _ := filepath.Glob(h.path("sys/class/net/*/device")) // cannot fail: the pattern is valid
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

// placeholders are texts that firmware has in place of a serial number, or in a part of it.
var placeholders = []string{
	"to be filled", "o.e.m", "default", "not ", "none", "unknown", "n/a", "serial", "invalid", "empty",
	"0123456789", "123456789", "03000200-0400-0500-0006-000700080009",
}

// placeholder reports whether a lower-case serial number is a placeholder, which is the same on
// many boards.
func placeholder(s string) bool {
	digits := strings.Trim(s, "-_. ")
	if len(digits) < 4 || strings.Trim(digits, digits[:1]+"-") == "" {
		return true
	}
	return slices.ContainsFunc(placeholders, func(p string) bool { return strings.Contains(s, p) })
}
