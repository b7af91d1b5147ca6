package backup

import (
	"io/fs"
	"os"
	"path"
	"strings"
)

// after has the files of this board as they are after a restore. It implements fs.FS, fs.ReadDirFS and fs.ReadLinkFS. All names are
// without the leading slash.
type after struct {
	board interface {
		fs.ReadDirFS
		fs.ReadLinkFS
	}
	staged map[string]string // paths of new files
	aside  map[string]bool   // files that are set aside
}

// newAfter returns the files after a plan. The parameter to contains the final paths of staged files.
func newAfter(s *Staged, to map[string]string, p *plan) *after {
	a := &after{staged: map[string]string{}, aside: map[string]bool{}}
	a.board, _ = os.DirFS("/").(interface {
		fs.ReadDirFS
		fs.ReadLinkFS
	})
	for _, m := range p.Moves {
		if m.Aside != "" {
			a.aside[strings.TrimPrefix(m.To, "/")] = true
		}
	}
	for _, f := range s.files {
		a.staged[strings.TrimPrefix(to[f.name], "/")] = f.path
	}
	return a
}

// isAside reports whether a file or a directory above it is set aside.
func (a *after) isAside(name string) bool {
	for ; name != "."; name = path.Dir(name) {
		if a.aside[name] {
			return true
		}
	}
	return false
}

// Open implements fs.FS.
func (a *after) Open(name string) (fs.File, error) {
	if staged, ok := a.staged[name]; ok {
		return os.Open(staged)
	}
	if a.isAside(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return a.board.Open(name)
}

// ReadDir implements fs.ReadDirFS. New directories are not listed.
func (a *after) ReadDir(name string) (list []fs.DirEntry, _ error) {
	entries, err := a.board.ReadDir(name)
	for _, e := range entries {
		file := path.Join(name, e.Name())
		if _, ok := a.staged[file]; !ok && !a.isAside(file) {
			list = append(list, e)
		}
	}
	for file, staged := range a.staged {
		if path.Dir(file) != name {
			continue
		}
		if info, err := os.Lstat(staged); err == nil {
			list = append(list, named{fs.FileInfoToDirEntry(info), path.Base(file)})
		}
	}
	if len(list) > 0 {
		err = nil
	}
	return list, err
}

// A named is an entry with another name.
type named struct {
	fs.DirEntry
	name string
}

// Name implements fs.DirEntry.
func (n named) Name() string { return n.name }

// ReadLink implements fs.ReadLinkFS. A restore makes no links outside of the directories of the node.
func (a *after) ReadLink(name string) (string, error) { return a.board.ReadLink(name) }

// Lstat implements fs.ReadLinkFS.
func (a *after) Lstat(name string) (fs.FileInfo, error) {
	if staged, ok := a.staged[name]; ok {
		return os.Lstat(staged)
	}
	return a.board.Lstat(name)
}
