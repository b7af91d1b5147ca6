package migrate

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/islet-edge/islet/internal/regular"
)

const (
	// maxFile is the maximum size of a file that is read.
	maxFile = 1 << 20
	// maxEntries is the maximum number of entries that are read of a directory.
	maxEntries = 4096
	// maxSkipped is the maximum number of files that a report lists as not read.
	maxSkipped = 64
)

// A Tree reads the files of a host. It opens only regular files and directories, without blocking, and limits the sizes. Names may begin
// with a slash. A Tree remembers the files that exist but that it could not read.
type Tree struct {
	root    string
	skipped []string
	isSaved bool // the files are those that the steps of an earlier report have copied, where such a copy exists
}

// NewTree returns the files below the directory root, which is / for this host.
func NewTree(root string) *Tree { return &Tree{root: root} }

// path is not inlined, because the copies at its many calls would enlarge the program.
//
//go:noinline
func (t *Tree) path(name string) string {
	name = filepath.Clean("/" + name)
	if t.isSaved {
		copied := filepath.Join(t.root, saved, name)
		if info, err := os.Stat(copied); err == nil && !info.IsDir() {
			return copied
		}
	}
	return filepath.Join(t.root, name)
}

// skip remembers a file that could not be read. A file that does not exist is not remembered.
func (t *Tree) skip(name string, err error) {
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || len(t.skipped) >= maxSkipped {
		return
	}
	if line := strings.ReplaceAll(err.Error(), t.path(name), filepath.Clean("/"+name)); !slices.Contains(t.skipped, line) {
		t.skipped = add(t.skipped, line)
	}
}

// Open opens a regular file or a directory.
func (t *Tree) Open(name string) (fs.File, error) {
	dir, err := os.OpenFile(t.path(name), os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err == nil {
		return dir, nil
	}
	if !errors.Is(err, syscall.ENOTDIR) {
		return nil, err
	}
	return regular.Open(t.path(name))
}

// ReadDir returns the first entries of a directory, sorted by name.
func (t *Tree) ReadDir(name string) ([]fs.DirEntry, error) {
	dir, err := os.OpenFile(t.path(name), os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	list, err := dir.ReadDir(maxEntries + 1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if len(list) > maxEntries {
		t.skip(name, errors.New(filepath.Clean("/"+name)+" has too many entries: only some of them were read"))
		list = list[:maxEntries]
	}
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list, err
}

// Stat follows links.
func (t *Tree) Stat(name string) (fs.FileInfo, error) { return os.Stat(t.path(name)) }

// read returns a file, or "" if the file cannot be read. A link to /dev/null is a masked unit, and has no content.
func (t *Tree) read(name string) string {
	if t.linkTarget(name) == os.DevNull {
		return ""
	}
	data, err := regular.Read(t.path(name), maxFile)
	t.skip(name, err)
	return string(data)
}

// list returns the names in a directory. It returns none if the directory cannot be read.
func (t *Tree) list(name string) (names []string) {
	entries, err := t.ReadDir(name)
	t.skip(name, err)
	for _, e := range entries {
		names = add(names, e.Name())
	}
	return names
}

// filesIn returns the paths of the files in a directory whose names have one of the suffixes. It omits hidden files.
func (t *Tree) filesIn(dir string, suffixes ...string) (files []string) {
	for _, name := range t.list(dir) {
		if !strings.HasPrefix(name, ".") && slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(name, s) }) {
			files = add(files, filepath.Join("/", dir, name))
		}
	}
	return files
}

//go:noinline
func (t *Tree) exists(name string) bool {
	_, err := os.Stat(t.path(name))
	return err == nil
}

// linkTarget returns the target of a link, or "" if the file is not a link.
func (t *Tree) linkTarget(name string) string {
	target, err := os.Readlink(t.path(name))
	if err != nil {
		return ""
	}
	return target
}
