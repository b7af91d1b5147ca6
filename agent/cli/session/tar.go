package session

import (
	"archive/tar"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/islet-edge/islet/agent/cli/command"
)

// pack archives a file or directory. The parameter from is the path to it, and base is its name in the archive.
func pack(w io.Writer, from, base string) error {
	out := tar.NewWriter(w)
	err := filepath.WalkDir(from, func(file string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, file)
		if err != nil {
			return err
		}
		return packOne(out, file, path.Join(base, filepath.ToSlash(rel)), e)
	})
	return errors.Join(err, out.Close())
}

func packOne(out *tar.Writer, file, name string, e fs.DirEntry) error {
	info, err := e.Info()
	if err != nil {
		return err
	}
	link := ""
	switch mode := info.Mode(); {
	case mode&fs.ModeSymlink != 0:
		if link, err = os.Readlink(file); err != nil {
			return err
		}
	case !mode.IsRegular() && !mode.IsDir():
		return fmt.Errorf("%s is neither a file, a directory nor a symbolic link", file)
	}
	head, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	head.Name, head.Uname, head.Gname = name, "", ""
	if info.IsDir() {
		head.Name += "/"
	}
	if err := out.WriteHeader(head); err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err = io.Copy(out, io.LimitReader(f, head.Size)); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// unpack extracts an archive to the path target. Every entry must be base or below it, otherwise unpack returns an
// error. The archive comes from a container and is not trusted. unpack writes nothing outside of target and follows no
// link that leads outside. It only creates files, directories, and symbolic links that stay within target.
func unpack(r io.Reader, base, target string) error {
	in := tar.NewReader(r)
	parent, name := filepath.Split(filepath.Clean(target))
	if base == "." {
		parent, name = target, "."
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
	}
	root, err := os.OpenRoot(cmp.Or(parent, "."))
	if err != nil {
		return err
	}
	defer root.Close()
	some := false
	var left []error
	for {
		head, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		rel, inside := relativeTo(base, head.Name)
		if !inside {
			return fmt.Errorf("the container sent %q, which was not requested", head.Name)
		}
		some = true
		err = unpackOne(root, in, head, name, path.Join(name, rel))
		if out := (leadsOut{}); errors.As(err, &out) {
			if left = append(left, err); len(left) < maxSkipped {
				continue
			}
			return errors.Join(left...)
		}
		if err != nil {
			return errors.Join(append(left, err)...)
		}
	}
	if _, err := io.Copy(io.Discard, r); err != nil { // reads the padding at the end of the archive
		return err
	}
	if !some {
		return command.ExitWith(command.ExitNotFound, errors.New("the container sent nothing"))
	}
	return errors.Join(left...)
}

// maxSkipped is the maximum number of symbolic links that a copy skips. A copy with more such links
// fails.
const maxSkipped = 100

// A leadsOut is the error for a symbolic link that was skipped because it leads out of the target. The other files
// are copied nevertheless.
type leadsOut struct{ file, to string }

func (l leadsOut) Error() string {
	return fmt.Sprintf("%s is a symbolic link to %q, outside of the copied directory: it is skipped", l.file, l.to)
}

// relativeTo returns the path of an entry relative to base. It returns false if the entry is outside of base.
func relativeTo(base, name string) (rel string, ok bool) {
	name, base = path.Clean(name), path.Clean(base)
	switch {
	case path.IsAbs(name) || name == ".." || strings.HasPrefix(name, "../"):
		return "", false
	case name == base:
		return ".", true
	case base == ".":
		return name, true
	}
	return strings.CutPrefix(name, base+"/")
}

func unpackOne(root *os.Root, in io.Reader, head *tar.Header, top, file string) error {
	mode := fs.FileMode(head.Mode) & fs.ModePerm
	if err := withoutLinks(root, top, path.Dir(file)); err != nil {
		return err
	}
	switch head.Typeflag {
	case tar.TypeDir:
		if err := root.Mkdir(file, mode|0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return nil
	case tar.TypeSymlink:
		if !staysBelow(file, head.Linkname, top) {
			return leadsOut{file, head.Linkname}
		}
		if err := root.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return root.Symlink(head.Linkname, file)
	case tar.TypeReg:
	default:
		return fmt.Errorf("%s is neither a file, a directory nor a symbolic link", file)
	}
	if err := root.MkdirAll(path.Dir(file), 0o755); err != nil {
		return err
	}
	if info, err := root.Lstat(file); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s exists and is not a regular file", file)
	}
	f, err := root.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, in)
	return errors.Join(err, f.Close())
}

// withoutLinks returns an error if a directory below top is reached through a symbolic link, because ".." would then
// be ambiguous.
func withoutLinks(root *os.Root, top, dir string) error {
	for ; dir != top && isBelow(dir, top); dir = path.Dir(dir) {
		if info, err := root.Lstat(dir); err == nil && !info.IsDir() {
			return fmt.Errorf("%s is not a directory", dir)
		}
	}
	return nil
}

// staysBelow reports whether a symbolic link leads to the directory top or to a path below it. The parameter file is
// the path of the link, and to is the target of the link. The target may contain ".." only at the beginning, because an
// earlier component could be a symbolic link.
func staysBelow(file, to, top string) bool {
	rest := to
	for strings.HasPrefix(rest, "../") {
		rest = rest[len("../"):]
	}
	up := rest != ".." && strings.Contains("/"+rest+"/", "/../")
	return !path.IsAbs(to) && !up && isBelow(path.Join(path.Dir(file), to), top)
}

// isBelow reports whether the relative path file, after cleaning, equals top or is below it.
func isBelow(file, top string) bool {
	file, top = path.Clean(file), path.Clean(top)
	if top == "." {
		return file != ".." && !strings.HasPrefix(file, "../")
	}
	return file == top || strings.HasPrefix(file, top+"/")
}
