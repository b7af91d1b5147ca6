package k3s

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/islet-edge/islet/internal/durable"
	"github.com/islet-edge/islet/internal/regular"
)

const (
	// currentLink is the symbolic link to the directory in use. Two directories take turns, so that one rename replaces all files.
	currentLink = "current"
	// pendingFile is the file in a Directory with the Files of a Store that has not ended. It contains files of a configuration twice.
	pendingFile = "unfinished.json"
	maxPending  = 8 * maxFile
)

// Root returns the directory of the cluster below the state directory of an agent.
func Root(state string) string { return filepath.Join(state, "k3s") }

// Current returns the directory in use below root, as a path that stays the same.
func Current(root string) Directory { return Directory(filepath.Join(root, currentLink)) }

// A File is a file that Store replaces together with the content of the directory, such as a configuration that belongs to it.
type File struct {
	Path     string      `json:"path"`
	Mode     fs.FileMode `json:"mode"`
	Old, New []byte      // Old is nil if there was no file
}

// content returns the content of the file. It is nil if the file does not exist.
func (f *File) content() ([]byte, error) {
	data, err := regular.Read(f.Path, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// isOld reports whether the file has its old content. It returns an error if somebody has changed the file.
func (f *File) isOld() (bool, error) {
	now, err := f.content()
	if err != nil || bytes.Equal(now, f.New) {
		return false, err
	}
	if !bytes.Equal(now, f.Old) {
		return false, fmt.Errorf("%s has changed meanwhile, so it stays as it is: run islet join again", f.Path)
	}
	return true, nil
}

// replace writes the new content. It returns an error if somebody has changed the file.
func (f *File) replace() error {
	if old, err := f.isOld(); !old {
		return err
	}
	if err := makeDirectories(filepath.Dir(f.Path), 0o755); err != nil {
		return err
	}
	return durable.Write(f.Path, f.New, f.Mode)
}

// restore writes the old content over the new one.
func (f *File) restore() error {
	now, err := f.content()
	switch {
	case err != nil || !bytes.Equal(now, f.New):
		return err
	case f.Old != nil:
		return durable.Write(f.Path, f.Old, f.Mode)
	}
	return errors.Join(os.Remove(f.Path), durable.SyncDir(filepath.Dir(f.Path)))
}

// A step is a part of a Store.
type step struct{ do, undo func() error }

// Store replaces the content of the directory in use below root, and then the files. The caller has locked root. Store calls check last.
// After an error, also of check, everything is as before. After a power cut, everything is as before, or Complete replaces the remaining
// files. While Store replaces files, islet setup does not change them.
func Store(root string, c *Cluster, files []File, check func() error) error {
	steps, former, err := c.steps(root, files)
	if err != nil {
		return fmt.Errorf("nothing has changed: %w", err)
	}
	var state *os.File
	defer func() { state.Close() }() // does nothing if it is nil
	for i, s := range append(steps, step{check, func() error { return nil }}) {
		err := s.do()
		if i == 0 && err == nil { // after the first write, because an agent may hold the lock on a disk that takes no writes
			state, err = AwaitState(filepath.Dir(root))
		}
		if err == nil {
			continue
		}
		for _, s := range slices.Backward(steps[:min(i+1, len(steps))]) {
			if failed := s.undo(); failed != nil {
				return fmt.Errorf("%w; a part has changed, so repeat the command, because the change cannot be undone: %w", err, failed)
			}
		}
		return fmt.Errorf("nothing has changed: %w", err)
	}
	if err := finish(root, former); err != nil {
		return fmt.Errorf("the node has joined, but old files are left: %w", err)
	}
	return nil
}

// steps returns the steps of Store, and the name of the directory that is in use before them.
func (c *Cluster) steps(root string, files []File) (steps []step, former string, _ error) {
	content, err := c.files()
	if err != nil {
		return nil, "", err
	}
	if content[pendingFile], err = json.Marshal(files); err != nil {
		return nil, "", err
	}
	former, err = os.Readlink(filepath.Join(root, currentLink))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, "", err
	}
	next := other(former)
	dir := filepath.Join(root, next)
	steps = []step{
		{func() error {
			if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
				return err
			}
			for name, data := range content {
				if err := durable.Write(filepath.Join(dir, name), data, 0o600); err != nil {
					return err
				}
			}
			return nil
		}, func() error { return os.RemoveAll(dir) }},
		{func() error { return switchTo(root, next) }, func() error { return switchTo(root, former) }},
	}
	for _, f := range files {
		steps = append(steps, step{f.replace, f.restore})
	}
	return steps, former, nil
}

// other returns the name of the directory that is not in use.
func other(name string) string {
	if name == "a" {
		return "b"
	}
	return "a"
}

// finish removes what a Store does not need any more: the list of its files, and the directory before with its keys.
func finish(root, former string) error {
	err := os.Remove(filepath.Join(root, currentLink, pendingFile))
	if former != "" {
		err = errors.Join(err, os.RemoveAll(filepath.Join(root, former)))
	}
	return errors.Join(err, durable.SyncDir(string(Current(root))))
}

// Complete replaces the remaining files of a Store that a power cut or a kill has interrupted. It reports whether there was such a Store.
// If somebody has changed one of the files since, Complete writes no file, and the Store stays unfinished. If a command is running, that
// command replaces the files.
func Complete(root string) (bool, error) {
	file := filepath.Join(root, currentLink, pendingFile)
	if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	l, err := lockWhenFree(root, pause) // does not wait for a command, which itself may wait for islet setup, which calls Complete
	if err != nil {
		return false, err
	}
	defer l.Close()
	data, err := regular.Read(file, maxPending)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	var files []File
	if err == nil {
		err = json.Unmarshal(data, &files)
	}
	if err == nil {
		err = complete(files)
	}
	if err != nil {
		return true, fmt.Errorf("%s: %w", file, err)
	}
	current, err := os.Readlink(filepath.Join(root, currentLink))
	if err != nil {
		return true, err
	}
	return true, finish(root, other(current))
}

// complete replaces all files, or none if somebody has changed one. It returns an error for a file other than the two configurations.
func complete(files []File) error {
	for i := range files {
		f := &files[i]
		f.Mode = f.Mode.Perm()
		dir, name := filepath.Split(f.Path)
		if name != "kubelet.yaml" && name != "edge.yaml" || !filepath.IsAbs(dir) || filepath.Dir(f.Path) != filepath.Dir(files[0].Path) {
			return fmt.Errorf("%.80q is not a configuration that islet join writes", f.Path)
		}
		if _, err := f.isOld(); err != nil {
			return err
		}
	}
	for _, f := range files {
		if err := f.replace(); err != nil {
			return err
		}
	}
	return nil
}

// switchTo durably sets the link to the directory in use. If the target is empty, switchTo removes the link.
func switchTo(root, target string) error {
	link, next := filepath.Join(root, currentLink), filepath.Join(root, ".current.new")
	err := os.Remove(next)
	if target == "" {
		err = os.Remove(link)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if target != "" {
		if err := os.Symlink(target, next); err != nil {
			return err
		}
		if err := os.Rename(next, link); err != nil {
			return err
		}
	}
	return durable.SyncDir(root)
}
