package host

import (
	"net"
	"path/filepath"
	"slices"
	"strings"
)

// serialFiles contains the files with the serial numbers in the firmware of a board or virtual
// machine.
var serialFiles = []string{
	"sys/class/dmi/id/product_uuid", "sys/class/dmi/id/product_serial", "sys/class/dmi/id/board_serial",
	"proc/device-tree/serial-number", "proc/device-tree/vm,uuid",
}

// Marks returns values that identify this machine: serial numbers of the firmware, and permanent addresses
// of Ethernet cards. Both lists are empty on a machine without such values, such as a container. The order
// is the same in each call. A list may contain a value twice. Marks omits addresses that software has set,
// and placeholders for serial numbers. Each call reads the files again, because a card may be added long
// after the boot.
func (h *Host) Marks() (serials, cards []string) {
	for _, file := range serialFiles {
		if s := strings.ToLower(h.readLine(file)); !isPlaceholder(s) {
			serials = append(serials, s)
		}
	}
	found, _ := filepath.Glob(h.path("sys/class/net/*/device")) // cannot fail, because the pattern is valid
	for _, device := range found {
		card := strings.TrimPrefix(filepath.Dir(device), h.root)
		mac, err := net.ParseMAC(h.readLine(card + "/address"))
		// An addr_assign_type of 0 (NET_ADDR_PERM) marks a permanent address. A type of 1 (ARPHRD_ETHER) marks an Ethernet card.
		if err == nil && h.readLine(card+"/addr_assign_type") == "0" && h.readLine(card+"/type") == "1" &&
			strings.Trim(mac.String(), "0:") != "" {
			cards = append(cards, mac.String())
		}
	}
	return serials, cards
}

// placeholderTexts contains parts of texts that some firmware reports instead of a serial number.
var placeholderTexts = []string{
	"to be filled", "o.e.m", "default", "not ", "none", "unknown", "n/a", "serial", "invalid", "empty",
	"0123456789", "123456789", "03000200-0400-0500-0006-000700080009",
}

// isPlaceholder reports whether a serial number in lower case is a placeholder, which does not identify a
// board.
func isPlaceholder(s string) bool {
	digits := strings.Trim(s, "-_. ")
	if len(digits) < 4 || strings.Trim(digits, digits[:1]+"-") == "" {
		return true
	}
	return slices.ContainsFunc(placeholderTexts, func(p string) bool { return strings.Contains(s, p) })
}
