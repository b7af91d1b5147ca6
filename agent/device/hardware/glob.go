package hardware

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// glob finds what a pattern of the configuration matches in /dev, and calls found with the
// path and that of the node: the same, or what a symbolic link leads to. It does not look
// into directories that are symbolic links, such as /dev/fd, nor outside of /dev.
func (h host) glob(pattern string, found func(path, node string)) {
	h.expand("/dev", strings.Split(strings.TrimPrefix(pattern, "/dev/"), "/"), func(p string, info fs.FileInfo) {
		switch {
		case info.Mode()&fs.ModeDevice != 0:
			found(p, p)
		case info.Mode()&fs.ModeSymlink != 0:
			if to, ok := h.follow(p); ok {
				found(p, to)
			}
		}
	})
}

func (h host) expand(dir string, parts []string, found func(string, fs.FileInfo)) {
	names := []string{parts[0]}
	if magic(parts[0]) {
		names, _ = list(h.at(dir)) // none: it is not there, or no more
	}
	for _, name := range names {
		if ok, _ := path.Match(parts[0], name); !ok && magic(parts[0]) {
			continue
		}
		p := filepath.Join(dir, name)
		switch info, err := os.Lstat(h.at(p)); {
		case err != nil:
		case len(parts) == 1:
			found(p, info)
		case info.IsDir():
			h.expand(p, parts[1:], found)
		}
	}
}

func magic(s string) bool { return strings.ContainsAny(s, `*?[\`) }

// maxLinks is how many symbolic links lead to a node at most.
const maxLinks = 8

// follow gives the device node below /dev that a symbolic link leads to.
func (h host) follow(p string) (string, bool) {
	for range maxLinks {
		to, err := os.Readlink(h.at(p))
		if err != nil {
			_, ok := h.stat(p)
			return p, ok
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(p), to)
		}
		if p = filepath.Clean(to); !strings.HasPrefix(p, "/dev/") {
			return "", false
		}
	}
	return "", false
}

// folders lists the directories of which a change may bring a pattern to match: each that
// is there of those that it goes through.
func (h host) folders(pattern string) (out []string) {
	parts := strings.Split(strings.TrimPrefix(pattern, "/dev/"), "/")
	out = []string{"/dev"}
	for i := 1; i < len(parts); i++ {
		h.expand("/dev", parts[:i], func(p string, info fs.FileInfo) {
			if info.IsDir() {
				out = append(out, p)
			}
		})
	}
	return out
}
