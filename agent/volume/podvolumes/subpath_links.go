package podvolumes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxSteps is the maximum number of path components that resolveLinks resolves, including the components of symlinks.
const maxSteps = 256

var errLeadsOut = errors.New("a symlink leads out of the volume")

// resolveLinks returns the path sub of a volume without symlinks. A kubelet follows an absolute symlink if its target is in
// the volume, such as /srv/app/current -> /srv/app/releases/42 in the hostPath /srv/app. resolveLinks does the same. The
// target must begin with the volume's path, or with the real path of the volume's directory dir. resolveLinks never
// accesses a path outside the volume, so a container cannot learn by symlinks which paths the host has. The last
// components of sub need not exist.
//
// The container may change the volume at any time, so the result may have symlinks again when it is used. The caller must
// open it without following symlinks.
func resolveLinks(root *os.Root, dir *os.File, volume, sub string) (string, error) {
	real, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()))
	if err != nil {
		return "", err
	}
	at, rest := ".", splitPath(sub)
	own := len(rest) // the last own components of rest are from sub, the others from symlinks
	for steps := 1; len(rest) > 0; steps++ {
		if steps+len(rest) > maxSteps {
			return "", unix.ELOOP
		}
		next := path.Join(at, rest[0])
		if !filepath.IsLocal(next) {
			return "", errLeadsOut
		}
		rest = rest[1:]
		target, err := root.Readlink(next)
		switch {
		case errors.Is(err, unix.EINVAL): // it is not a symlink
			at, own = next, min(own, len(rest))
			continue
		case errors.Is(err, fs.ErrNotExist) && len(rest) < own:
			return path.Join(next, path.Join(rest...)), nil
		case err != nil:
			return "", err
		}
		parts := splitPath(target)
		if path.IsAbs(target) {
			below, ok := cutParts(parts, splitPath(volume))
			if !ok {
				below, ok = cutParts(parts, splitPath(real))
			}
			if !ok {
				return "", errLeadsOut
			}
			at, parts = ".", below
		}
		own = min(own, len(rest))
		rest = slices.Concat(parts, rest)
	}
	return at, nil
}

// splitPath returns the components of a path, without empty components and ".".
func splitPath(name string) []string {
	return slices.DeleteFunc(strings.Split(name, "/"), func(p string) bool { return p == "" || p == "." })
}

// cutParts returns the components of a path that follow the components of a directory. It returns false if the path does not
// begin with those.
func cutParts(parts, dir []string) ([]string, bool) {
	if len(parts) < len(dir) || !slices.Equal(parts[:len(dir)], dir) {
		return nil, false
	}
	return parts[len(dir):], true
}
