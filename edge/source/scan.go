package source

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/manifest"
)

// freshAge is the age up to which a changed file is read at every check. A second change within one tick of the file system's clock does
// not change the times of the file, so only a read can detect it.
const freshAge = 3 * time.Second

// openFileTimeout is the maximum wait for a file that a program has open for writing. After that time, the file is read if it has not
// changed.
const openFileTimeout = 5 * time.Second

// errOpen means that a file is open for writing.
var errOpen = errors.New("is being written: it is read after that")

// A file is the result of the last read of a manifest.
type file struct {
	id      identity
	settled bool      // the file is not read again while id is unchanged
	open    time.Time // time when the file was first seen open for writing with this id
	content
	problems []desired.Problem
}

// An identity is used to detect that the content of a file has changed. It includes the change time of the inode, which programs cannot
// set.
type identity struct {
	dev, ino      uint64
	size          int64
	mtime, change syscall.Timespec
}

func fileIdentity(fi fs.FileInfo) identity {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return identity{size: fi.Size()}
	}
	return identity{uint64(st.Dev), st.Ino, st.Size, st.Mtim, st.Ctim}
}

// scanManifests reads the manifests at a path, which is a directory or a file. The caller passes the result of the last scan, and only the
// files that have changed since that scan are read. It returns an error if the path itself cannot be read.
func scanManifests(path string, old map[string]file, decode Decode) (files map[string]file, changed bool, err error) {
	names, err := listManifests(path)
	if err != nil {
		return nil, false, err
	}
	files = make(map[string]file, len(names))
	for _, name := range names {
		before, found := old[name]
		f, exists := readIfChanged(name, before, decode)
		if exists {
			files[name] = f
		}
		// If a program had the file open for writing at the last scan, the file was not read. When the program closes the file, its id
		// stays the same.
		changed = changed || exists != found || exists && (f.id != before.id || !f.settled || !before.open.IsZero())
	}
	for name := range old {
		if _, still := files[name]; !still {
			changed = true
		}
	}
	return files, changed, nil
}

// listManifests returns the paths of all files that may be manifests.
func listManifests(path string) ([]string, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if fi.Mode().IsRegular() {
		return []string{path}, nil
	}
	if !fi.IsDir() {
		return nil, fmt.Errorf("%s is neither a directory nor a file, but %s", path, fileKind(fi))
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && !e.IsDir() {
			names = append(names, filepath.Join(path, e.Name()))
		}
	}
	return names, nil
}

// readIfChanged reads a file if it has changed. It returns false for a missing file, and for a directory.
func readIfChanged(name string, before file, decode Decode) (f file, exists bool) {
	fi, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Lstat(name); err != nil {
			return file{}, false // the file has vanished
		}
		return failedFile(name, "the symbolic link leads nowhere"), true
	case err != nil:
		return failedFile(name, err.Error()), true
	case fi.IsDir():
		return file{}, false
	case !fi.Mode().IsRegular(): // opening a device may have side effects
		return failedFile(name, "is "+fileKind(fi)+", not a manifest"), true
	case before.settled && before.id == fileIdentity(fi):
		return before, true
	}
	data, fi, err := readManifest(name, !before.open.IsZero() && before.id == fileIdentity(fi) && time.Since(before.open) > openFileTimeout)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return file{}, false
	case errors.Is(err, errOpen):
		f := failedFile(name, err.Error())
		if f.id, f.open = fileIdentity(fi), time.Now(); f.id == before.id && !before.open.IsZero() {
			f.open = before.open
		}
		return f, true
	case err != nil:
		return failedFile(name, err.Error()), true
	}
	f = file{id: fileIdentity(fi), settled: time.Since(fi.ModTime()).Abs() > freshAge}
	f.content, f.problems = parse(decode, data, name, name)
	return f, true
}

func failedFile(name, why string) file {
	return file{problems: []desired.Problem{{Origin: name, Message: why}}}
}

// readManifest reads a file of at most manifest.MaxSize bytes. It does not block if the file is a FIFO. A partially written manifest can
// be valid. Therefore a lease of the file is taken (F_SETLEASE in fcntl(2)), if the file system supports leases. The kernel refuses the
// lease while the file is open for writing. It delays writers until the lease ends.
func readManifest(name string, evenIfOpen bool) ([]byte, fs.FileInfo, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%s is %s, not a manifest", name, fileKind(fi))
	}
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK) // closing the file ends the lease
	if errors.Is(err, unix.EAGAIN) && !evenIfOpen {
		return nil, fi, errOpen
	}
	data, err := readLimited(f, name)
	return data, fi, err
}

// readLimited reads all data. It returns an error if the data are larger than a manifest may be.
func readLimited(r io.Reader, name string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, manifest.MaxSize+1))
	if err == nil && len(data) > manifest.MaxSize {
		err = fmt.Errorf("%s is larger than %d MiB, the maximum for a manifest", name, manifest.MaxSize>>20)
	}
	return data, err
}

func fileKind(fi fs.FileInfo) string {
	switch mode := fi.Mode(); {
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "of type " + fi.Mode().Type().String()
}

// sortedFiles iterates over the files in the order of their paths.
func sortedFiles(files map[string]file) iter.Seq2[string, file] {
	return func(yield func(string, file) bool) {
		for _, name := range slices.Sorted(maps.Keys(files)) {
			if !yield(name, files[name]) {
				return
			}
		}
	}
}
