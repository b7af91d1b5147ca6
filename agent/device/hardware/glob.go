package hardware

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// eachDevicePath calls a function for each path in /dev that matches a pattern of the configuration. It passes the matching path
// and the path of the device node, which differ for a symbolic link. Links to directories, such as /dev/fd, are not
// followed. Links to device nodes outside of /dev are ignored.
func (h host) eachDevicePath(pattern string, found func(path, node string)) {
	h.walkPattern("/dev", strings.Split(strings.TrimPrefix(pattern, "/dev/"), "/"), func(p string, info fs.FileInfo) {
		switch {
		case info.Mode()&fs.ModeDevice != 0:
			found(p, p)
		case info.Mode()&fs.ModeSymlink != 0:
			if to, ok := h.resolveLink(p); ok {
				found(p, to)
			}
		}
	})
}

func (h host) walkPattern(dir string, parts []string, found func(string, fs.FileInfo)) {
	names := []string{parts[0]}
	if hasWildcard(parts[0]) {
		names, _ = listNames(h.absolutePath(dir)) // if this fails, the directory is empty
	}
	for _, name := range names {
		if ok, _ := path.Match(parts[0], name); !ok && hasWildcard(parts[0]) {
			continue
		}
		p := filepath.Join(dir, name)
		switch info, err := os.Lstat(h.absolutePath(p)); {
		case err != nil:
		case len(parts) == 1:
			found(p, info)
		case info.IsDir():
			h.walkPattern(p, parts[1:], found)
		}
	}
}

func hasWildcard(s string) bool { return strings.ContainsAny(s, `*?[\`) }

// maxLinks is the maximum length of a chain of symbolic links.
const maxLinks = 8

// resolveLink follows a symbolic link to a device node below /dev and returns its path.
func (h host) resolveLink(p string) (string, bool) {
	for range maxLinks {
		to, err := os.Readlink(h.absolutePath(p))
		if err != nil {
			_, ok := h.statDevice(p)
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

// watchDirs returns the directories in which a change may affect the paths that match a pattern: every existing
// directory along the pattern.
func (h host) watchDirs(pattern string) (out []string) {
	parts := strings.Split(strings.TrimPrefix(pattern, "/dev/"), "/")
	out = []string{"/dev"}
	for i := 1; i < len(parts); i++ {
		h.walkPattern("/dev", parts[:i], func(p string, info fs.FileInfo) {
			if info.IsDir() {
				out = append(out, p)
			}
		})
	}
	return out
}
