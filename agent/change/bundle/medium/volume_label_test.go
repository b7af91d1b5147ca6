package medium

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"unicode/utf16"
)

// An image is a device in memory.
type image []byte

func (i image) put(at int, data ...byte) image { copy(i[at:], data); return i }

func (i image) text(at int, text string) image { return i.put(at, []byte(text)...) }

func (i image) u16(at int, v uint16) image { binary.LittleEndian.PutUint16(i[at:], v); return i }

func (i image) u32(at int, v uint32) image { binary.LittleEndian.PutUint32(i[at:], v); return i }

func newISO(label string) image {
	return make(image, 64<<10).put(32<<10, 1).text(32<<10+1, "CD001").text(32<<10+40, label+"                                "[len(label):])
}

func newExt4(label string) image {
	return make(image, 64<<10).u16(1024+56, 0xef53).text(1024+120, label)
}

// newExfat returns a file system with sectors of 512 bytes and clusters of 4 KiB, and the root directory in cluster 5.
func newExfat(label string) image {
	i := make(image, 256<<10).text(3, "EXFAT   ").put(108, 9, 3).u32(88, 64).u32(96, 5)
	dir := 64*512 + 3*4096
	i.put(dir, 0x81).put(dir+32, 0x82).put(dir+64, 0x83, byte(len(label)))
	for n, r := range utf16.Encode([]rune(label)) {
		i.u16(dir+66+2*n, r)
	}
	return i
}

// entry returns an entry of a directory of vfat.
func entry(name string, kind byte) []byte {
	e := bytes.Repeat([]byte{' '}, entrySize)
	copy(e, name)
	e[11] = kind
	return e
}

// newFAT16 returns a file system with two tables of 8 sectors. The entries are those of its root directory.
func newFAT16(boot string, entries ...[]byte) image {
	i := make(image, 128<<10).u16(11, 512).put(13, 4).u16(14, 1).put(16, 2).u16(17, 512).u16(22, 8).put(38, 0x29).text(43, boot).
		u16(510, 0xaa55)
	return i.put((1+2*8)*512, bytes.Join(entries, nil)...)
}

// newFAT32 returns a file system with clusters of 512 bytes. The root directory is in the clusters 2 and 9.
func newFAT32(boot string, second ...[]byte) image {
	i := make(image, 128<<10).u16(11, 512).put(13, 1).u16(14, 32).put(16, 2).u32(36, 8).u32(44, 2).put(66, 0x29).text(71, boot).
		u16(510, 0xaa55)
	data := (32 + 2*8) * 512
	i.u32(32*512+4*2, 9).u32(32*512+4*9, 0x0fffffff)
	for n := range 16 {
		i.put(data+n*entrySize, entry("FILE    TXT", 0x20)...)
	}
	return i.put(data+7*512, bytes.Join(second, nil)...)
}

// TestLabel checks the labels of all file systems, and that a label that only resembles one is none.
func TestLabel(t *testing.T) {
	const volume, long, deleted = 0x08, 0x0f, "\xe5SLET      "
	loop := newFAT32("NO NAME    ", bytes.Repeat(entry("FILE    TXT", 0x20), 16))
	loop.u32(32*512+4*9, 9) // the directory never ends
	for name, c := range map[string]struct {
		device image
		want   string
	}{
		"iso9660":                           {newISO("ISLET"), iso9660},
		"ext4":                              {newExt4("ISLET"), ext4},
		"exfat":                             {newExfat("ISLET"), exfat},
		"FAT16, directory":                  {newFAT16("NO NAME    ", entry("DIR        ", 0x10), entry("ISLET      ", volume)), vfat},
		"FAT16, boot sector":                {newFAT16("ISLET      ", entry("DIR        ", 0x10)), vfat},
		"FAT16, renamed":                    {newFAT16("ISLET      ", entry("OTHER      ", volume)), ""},
		"FAT16, removed":                    {newFAT16("NO NAME    ", entry(deleted, volume)), ""},
		"FAT16, a long name":                {newFAT16("NO NAME    ", entry("ISLET      ", long)), ""},
		"FAT16, a file":                     {newFAT16("NO NAME    ", entry("ISLET      ", 0x20)), ""},
		"FAT32, second cluster":             {newFAT32("NO NAME    ", entry("ISLET      ", volume)), vfat},
		"FAT32, boot sector":                {newFAT32("ISLET      "), vfat},
		"FAT32, a directory without an end": {loop, ""},
		"FAT32, a cluster beyond the end":   {newFAT32("ISLET      ").u32(44, 0x0ffffff0), vfat},
		"another label":                     {newExt4("ISLET2"), ""},
		"a prefix":                          {newISO("ISLE"), ""},
		"nothing":                           {make(image, 64<<10), ""},
		"a tiny device":                     {newExt4("ISLET")[:2048], ext4},
		"an empty device":                   {nil, ""},
		"exfat, a long label":               {newExfat("ISLET").put(64*512+3*4096+65, 200), ""},
		"exfat, large sectors":              {newExfat("ISLET").put(108, 40, 40), ""},
		"exfat, a heap beyond the end":      {newExfat("ISLET").u32(88, 0xffffffff), ""},
	} {
		got, err := findLabel(bytes.NewReader(c.device), "ISLET")
		if got != c.want || err != nil {
			t.Errorf("%s: %q, %v, want %q", name, got, err, c.want)
		}
	}
}

// TestMadeByOthers checks the labels of file systems that the usual programs have made.
func TestMadeByOthers(t *testing.T) {
	found := 0
	for _, c := range []struct {
		want string
		size int64
		args []string // the file follows
	}{
		{ext4, 1 << 20, []string{"mkfs.ext4", "-q", "-L", "ISLET"}},
		{vfat, 1 << 20, []string{"mkfs.vfat", "-n", "ISLET"}},
		{vfat, 40 << 20, []string{"mkfs.vfat", "-F", "32", "-n", "ISLET"}},
		{exfat, 4 << 20, []string{"mkfs.exfat", "-n", "ISLET"}},
	} {
		program, err := exec.LookPath(c.args[0])
		if err != nil {
			continue
		}
		file := filepath.Join(t.TempDir(), "image")
		err = errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, c.size))
		if out, err2 := exec.Command(program, append(c.args[1:], file)...).CombinedOutput(); err != nil || err2 != nil {
			t.Fatalf("%v %v: %s", err, err2, out)
		}
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		found++
		if got, err := findLabel(f, "ISLET"); got != c.want || err != nil {
			t.Errorf("%v: %q, %v", c.args, got, err)
		}
	}
	if found == 0 {
		t.Skip("no program that makes a file system")
	}
}

// A counter counts the bytes that are read. From the second read on, the device returns other bytes if other is not nil.
type counter struct {
	device, other image
	reads, bytes  int
}

func (c *counter) ReadAt(b []byte, at int64) (int, error) {
	d := c.device
	if c.reads++; c.reads > 1 && c.other != nil {
		d = c.other
	}
	c.bytes += len(b)
	if at < 0 {
		return 0, errors.New("a negative offset")
	}
	return bytes.NewReader(d).ReadAt(b, at)
}

// FuzzLabel checks that any device, also one that returns other bytes at each read, is read within the limits.
func FuzzLabel(f *testing.F) {
	for _, i := range []image{newISO("ISLET"), newExt4("ISLET"), newExfat("ISLET"), newFAT16("ISLET      "), newFAT32("ISLET      ")} {
		f.Add([]byte(i[:headSize+8<<10]), []byte("\x02\x00\x00\x00"))
	}
	f.Fuzz(func(t *testing.T, device, other []byte) {
		c := &counter{device: device, other: bytes.Repeat(other, 1+(64<<10)/(1+len(other)))}
		fileSystem, err := findLabel(c, "ISLET")
		if fileSystem != "" && err != nil || errors.Is(err, io.EOF) {
			t.Errorf("%q, %v", fileSystem, err)
		}
		if c.bytes > headSize+4*maxDirectory {
			t.Errorf("%d bytes were read", c.bytes)
		}
	})
}
