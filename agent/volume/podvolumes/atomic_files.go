package podvolumes

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/islet-edge/islet/internal/untrusted"
	"github.com/islet-edge/islet/runtime/mounts"
)

// A file is the wanted content, mode and owner of one file in a volume.
type file struct {
	data []byte
	mode fs.FileMode
	uid  int // owner's user ID; 0 is root
}

// files contains the wanted files of a volume, by their paths in the volume.
type files map[string]file

// These are names in the directory of a volume. Containers use links whose targets go through dataLink. So all files
// change at once when dataLink is replaced:
//
//	key      -> ..data/key
//	..data   -> ..2026_11_21_04_00_00.123456789
//	..2026_11_21_04_00_00.123456789/key
//
// https://kubernetes.io/docs/concepts/configuration/configmap/#mounted-configmaps-are-updated-automatically
const (
	hidden          = ".."
	dataLink        = "..data"
	nextLink        = "..data_tmp"
	timestampLayout = "..2006_01_02_15_04_05.000000000"

	groupReads = 0o440 // added to the mode of files if the pod has an fsGroup
	dataDir    = 0o755
)

// hasFiles reports whether the files of the volume have been written.
func hasFiles(dir string) bool {
	_, err := os.Readlink(filepath.Join(dir, dataLink))
	return err == nil
}

// cleanName returns the shortest form of a file's path in a volume. The API accepts a path such as ./a, a//b or a/. The
// result is an error if the path leads out of the volume or collides with the names above.
func cleanName(name string) (string, error) {
	clean := path.Clean(name)
	if !filepath.IsLocal(name) || slices.Contains(strings.Split(name, "/"), "..") || clean == "." || strings.HasPrefix(clean, hidden) ||
		strings.ContainsRune(name, 0) {
		return "", fmt.Errorf("%q is not a valid path in a volume: it must be relative and must not contain or begin with ..", name)
	}
	return clean, nil
}

// cleanNames returns the files with their paths in the shortest form. If several paths have the same shortest form, the last path in
// the order of strings applies. Otherwise each write could choose another file.
func (f files) cleanNames() (files, error) {
	all := make(files, len(f))
	for _, name := range slices.Sorted(maps.Keys(f)) {
		clean, err := cleanName(name)
		if err != nil {
			return nil, err
		}
		if u := f[name].uid; u < 0 || int64(u) > math.MaxInt32 { // chown would not set it, and each call would write the files again
			return nil, fmt.Errorf("file %q: %d is not the ID of a user", name, u)
		}
		all[clean] = f[name]
	}
	return all, nil
}

// write replaces the content of the directory by these files. The group with the ID gid can read them. If gid is -1,
// there is no such group. If write is interrupted, the old files remain valid, and the next call removes the incomplete
// new files.
func (f files) write(dir string, gid int) error {
	f, err := f.cleanNames()
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	now, err := root.Readlink(dataLink)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err != nil || !f.matchDirectory(root, now, gid) {
		if now, err = f.writeNew(root, gid); err != nil {
			return fmt.Errorf("write the files of the volume: %w", err)
		}
		if err := f.linkFiles(root, now); err != nil {
			return fmt.Errorf("link the files of the volume: %w", err)
		}
	}
	return f.removeStale(root, now)
}

// matchDirectory reports whether the data directory contains exactly these files, and the links to them exist.
func (f files) matchDirectory(root *os.Root, data string, gid int) bool {
	found := 0
	err := fs.WalkDir(root.FS(), data, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		want, ok := f[strings.TrimPrefix(name, data+"/")]
		if !ok {
			found = -1 // unexpected file
			return fs.SkipAll
		}
		if fi.Mode() != want.finalMode(gid) || !want.hasOwner(fi) || fi.Size() != int64(len(want.data)) {
			return fs.SkipAll
		}
		got, err := untrusted.ReadFile(root.Name(), name, int64(len(want.data)))
		if err != nil || !bytes.Equal(got, want.data) {
			return fs.SkipAll
		}
		found++
		return nil
	})
	return err == nil && found == len(f) && f.hasLinks(root)
}

// hasLinks reports whether every top-level name is a link to its file.
func (f files) hasLinks(root *os.Root) bool {
	for name := range f.topNames() {
		if to, err := root.Readlink(name); err != nil || to != path.Join(dataLink, name) {
			return false
		}
	}
	return true
}

// hasOwner reports whether an existing file has the same owner as f.
func (f file) hasOwner(fi fs.FileInfo) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && st.Uid == uint32(f.uid) //nolint:gosec // a user ID
}

func (f file) finalMode(gid int) fs.FileMode {
	if gid >= 0 {
		return f.mode | groupReads
	}
	return f.mode
}

// writeNew writes the files into a new data directory.
func (f files) writeNew(root *os.Root, gid int) (data string, err error) {
	dirMode := fs.FileMode(dataDir)
	if gid >= 0 {
		dirMode |= fs.ModeSetgid
	}
	mkdir := func(name string) error {
		if err := root.Mkdir(name, 0o700); errors.Is(err, fs.ErrExist) && name != data {
			return nil
		} else if err != nil {
			return err
		}
		if err := root.Chown(name, -1, gid); err != nil {
			return err
		}
		return root.Chmod(name, dirMode)
	}
	for now := time.Now().UTC(); ; now = now.Add(1) { // needed because the clock may not have advanced
		data = now.Format(timestampLayout)
		if err := mkdir(data); err == nil {
			break
		} else if !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f)) {
		at := data
		parts := strings.Split(path.Dir(name), "/")
		for _, part := range parts {
			if part == "." {
				break
			}
			at = path.Join(at, part)
			if err := mkdir(at); err != nil {
				return "", err
			}
		}
		if err := f[name].create(root, path.Join(data, name), gid); err != nil {
			return "", err
		}
	}
	return data, nil
}

func (f file) create(root *os.Root, name string, gid int) error {
	out, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = out.Write(f.data)
	if err == nil && (f.uid != 0 || gid >= 0) {
		err = out.Chown(f.uid, gid)
	}
	if err == nil {
		err = out.Chmod(f.finalMode(gid))
	}
	return errors.Join(err, out.Close())
}

// linkFiles creates the links to new files. These links have no valid target until dataLink is replaced. The
// replacement changes all files at once.
func (f files) linkFiles(root *os.Root, data string) error {
	for name := range f.topNames() {
		to := path.Join(dataLink, name)
		if has, err := root.Readlink(name); err == nil && has == to {
			continue
		}
		if err := removeTree(root, name); err != nil {
			return err
		}
		if err := root.Symlink(to, name); err != nil {
			return err
		}
	}
	if err := removeTree(root, nextLink); err != nil {
		return err
	}
	if err := root.Symlink(data, nextLink); err != nil {
		return err
	}
	return root.Rename(nextLink, dataLink)
}

// removeStale removes links to deleted files, and old data directories.
func (f files) removeStale(root *os.Root, data string) error {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	tops := f.topNames()
	for _, e := range entries {
		name, stale := e.Name(), false
		if strings.HasPrefix(name, hidden) {
			stale = name != data && name != dataLink
		} else if !tops[name] {
			to, err := root.Readlink(name)
			stale = err == nil && to == path.Join(dataLink, name)
		}
		if !stale {
			continue
		}
		if err := removeTree(root, name); err != nil {
			return fmt.Errorf("remove old files of the volume: %w", err)
		}
	}
	return nil
}

// topNames returns the top-level names of the files.
func (f files) topNames() map[string]bool {
	tops := map[string]bool{}
	for name := range f {
		top, _, _ := strings.Cut(name, "/")
		tops[top] = true
	}
	return tops
}

// removeTree removes a directory tree. It fails if anything is mounted below it.
func removeTree(root *os.Root, name string) error {
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	return mounts.RemoveAt(dir, name)
}
