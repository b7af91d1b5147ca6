package medium

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"
	"unicode/utf16"
)

// Names of file systems, as in /proc/filesystems.
const (
	vfat    = "vfat"
	exfat   = "exfat"
	ext4    = "ext4"
	iso9660 = "iso9660"
)

const (
	headSize = 34 << 10 // up to the end of the first volume descriptor of iso9660
	// maxDirectory is the maximum number of bytes of a root directory that are searched for the label.
	maxDirectory = 64 << 10
	entrySize    = 32 // of a directory of vfat and exfat
)

// findLabel returns the type of the file system on device if this file system has the given label, and "" otherwise. It reads at most
// headSize and maxDirectory bytes and 8 bytes for each cluster of the directory. It does not use udev's links in /dev/disk/by-label: a node
// may run no udev, udev sets a link after the event of the kernel, and two sticks with one label have one link.
func findLabel(device io.ReaderAt, label string) (fileSystem string, err error) {
	head := make([]byte, headSize)
	n, err := device.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	clear(head[n:])
	for _, f := range []struct {
		name string
		read func(head []byte, device io.ReaderAt) (label string, err error)
	}{{exfat, readExfat}, {vfat, readVfat}, {ext4, readExt4}, {iso9660, readISO}} {
		got, err := f.read(head, device)
		if err != nil {
			return "", err
		}
		if got == label && got != "" {
			return f.name, nil
		}
	}
	return "", nil
}

// readISO returns the label in the first volume descriptor. https://wiki.osdev.org/ISO_9660
func readISO(head []byte, _ io.ReaderAt) (string, error) {
	d := head[32<<10:]
	if !bytes.HasPrefix(d, []byte("\x01CD001")) {
		return "", nil
	}
	return strings.TrimRight(string(d[40:72]), " "), nil
}

// readExt4 returns the label in the superblock, also for ext2 and ext3. https://docs.kernel.org/filesystems/ext4/super.html
func readExt4(head []byte, _ io.ReaderAt) (string, error) {
	s := head[1024:2048]
	if binary.LittleEndian.Uint16(s[56:]) != 0xef53 {
		return "", nil
	}
	label, _, _ := strings.Cut(string(s[120:136]), "\x00")
	return label, nil
}

// readExfat returns the label in the root directory.
// https://learn.microsoft.com/en-us/windows/win32/fileio/exfat-specification
func readExfat(head []byte, device io.ReaderAt) (string, error) {
	sector, cluster := head[108], head[109]
	if string(head[3:11]) != "EXFAT   " || sector < 9 || sector > 12 || cluster > 25-sector {
		return "", nil
	}
	heap, root := binary.LittleEndian.Uint32(head[88:]), binary.LittleEndian.Uint32(head[96:])
	if root < 2 {
		return "", nil
	}
	size := int64(1) << (sector + cluster)
	dir, err := readPart(device, int64(heap)<<sector+int64(root-2)*size, min(size, maxDirectory))
	if err != nil {
		return "", err
	}
	for e := range slices.Chunk(dir, entrySize) {
		switch {
		case len(e) < entrySize || e[0] == 0: // the end
			return "", nil
		case e[0] == 0x83 && e[1] <= 11:
			var text []uint16
			for i := range int(e[1]) {
				text = append(text, binary.LittleEndian.Uint16(e[2+2*i:]))
			}
			return string(utf16.Decode(text)), nil
		}
	}
	return "", nil
}

// readVfat returns the label in the root directory. If there is none, it returns the label in the boot sector.
// https://learn.microsoft.com/en-us/windows-hardware/drivers/ddi/ (the FAT32 file system specification)
func readVfat(head []byte, device io.ReaderAt) (string, error) {
	u16 := binary.LittleEndian.Uint16
	sector, perCluster, reserved := int64(u16(head[11:])), int64(head[13]), int64(u16(head[14:]))
	tables, entries, perTable := int64(head[16]), int64(u16(head[17:])), int64(u16(head[22:]))
	valid := u16(head[510:]) == 0xaa55 && slices.Contains([]int64{512, 1024, 2048, 4096}, sector) &&
		perCluster > 0 && perCluster&(perCluster-1) == 0 && reserved > 0 && (tables == 1 || tables == 2)
	if !valid {
		return "", nil
	}
	var dir []byte
	var err error
	boot := head[38:]
	if entries > 0 { // FAT12, FAT16
		dir, err = readPart(device, (reserved+tables*perTable)*sector, min(entries*entrySize, maxDirectory))
	} else {
		boot = head[66:]
		perTable = int64(binary.LittleEndian.Uint32(head[36:]))
		c := chain{device, reserved * sector, (reserved + tables*perTable) * sector, perCluster * sector}
		dir, err = c.read(binary.LittleEndian.Uint32(head[44:]))
	}
	if err != nil {
		return "", err
	}
	const volume, directory = 0x08, 0x10
	for e := range slices.Chunk(dir, entrySize) {
		if len(e) < entrySize || e[0] == 0 { // the end
			break
		}
		if kind := e[11]; e[0] != 0xe5 && kind != 0x0f && kind&(volume|directory) == volume {
			return strings.TrimRight(string(e[:11]), " "), nil
		}
	}
	if boot[0] != 0x29 { // there is no label in the boot sector
		return "", nil
	}
	return strings.TrimRight(string(boot[5:16]), " "), nil
}

// A chain reads the clusters of a directory of FAT32.
type chain struct {
	device                io.ReaderAt
	table, clusters, size int64 // offsets of the table and of cluster 2, size of a cluster, in bytes
}

func (c chain) read(cluster uint32) (dir []byte, err error) {
	const last = 0x0ffffff7 // this value and higher ones mark a bad cluster or the end of the chain
	for cluster >= 2 && cluster < last && len(dir) < maxDirectory {
		part, err := readPart(c.device, c.clusters+int64(cluster-2)*c.size, min(c.size, maxDirectory))
		if err != nil {
			return nil, err
		}
		dir = append(dir, part...)
		if len(part) == 0 { // beyond the end of the device
			break
		}
		next, err := readPart(c.device, c.table+4*int64(cluster), 4)
		if err != nil {
			return nil, err
		}
		if len(next) < 4 {
			break
		}
		cluster = binary.LittleEndian.Uint32(next) & 0x0fffffff
	}
	return dir, nil
}

// readPart reads a part of a device. The result is shorter if the device ends before.
func readPart(device io.ReaderAt, at, size int64) ([]byte, error) {
	b := make([]byte, size)
	n, err := device.ReadAt(b, at)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b[:n], err
}
