package medium

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/islet-edge/islet/internal/regular"
)

// maxAttribute is the maximum size of a file in /sys, in bytes.
const maxAttribute = 4 << 10

// classDir has a link for each disk and partition.
const classDir = "/sys/class/block"

// A device is a disk or partition with an inserted medium.
type device struct {
	name string // of the link in classDir, such as sdb1
	node string // such as /dev/sdb1
	// medium changes when another medium is inserted. On Linux 5.15 and later, it contains diskseq, which counts the media. On an older
	// kernel, it contains only the size, so a device is examined again only after an event that removes it.
	medium  string
	counted bool
}

// readDevice returns a device. It returns false if the device does not exist, has no medium, is a part of another device such as a RAID, or
// is virtual, such as an LVM volume. Loop devices are not excluded.
func readDevice(name string) (d device, ok bool) {
	if name != filepath.Base(name) || strings.HasPrefix(name, ".") {
		return d, false
	}
	dir, err := filepath.EvalSymlinks(filepath.Join(classDir, name))
	if err != nil {
		return d, false
	}
	read := func(name string) string {
		b, _ := regular.Read(filepath.Join(dir, name), maxAttribute) // a missing file is empty
		return strings.TrimSpace(string(b))
	}
	size := read("size")
	holders, _ := os.ReadDir(filepath.Join(dir, "holders"))
	virtual := strings.HasPrefix(dir, "/sys/devices/virtual/") && !strings.HasPrefix(name, "loop")
	if size == "" || size == "0" || len(holders) > 0 || virtual {
		return d, false
	}
	d = device{name: name, node: "/dev/" + strings.ReplaceAll(name, "!", "/"), medium: size}
	count := read("diskseq")
	if count == "" {
		count = read("../diskseq") // of a partition's disk
	}
	if count != "" {
		d.medium, d.counted = count+" "+size, true
	}
	return d, true
}

// listDevices returns the names of all disks and partitions.
func listDevices() (names []string, err error) {
	dir, err := os.Open(classDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Readdirnames(-1)
}
