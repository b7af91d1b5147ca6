package untrusted

import (
	"path/filepath"
	"strings"
)

// SplitLog splits the path of a container's log into a root and a name for Open, OpenFile and OpenDir. In a path
// <logs>/<namespace>_<name>_<uid>/<container>/<file>, the root is <logs>, because a pod that mounts the host's log directory can
// replace everything below it. In any other path, the root is the directory of the file.
func SplitLog(path string) (root, name string) {
	dir := filepath.Dir(path)
	pod := filepath.Dir(dir)
	if strings.Count(filepath.Base(pod), "_") < 2 {
		return dir, filepath.Base(path)
	}
	root = filepath.Dir(pod)
	return root, filepath.Join(filepath.Base(pod), filepath.Base(dir), filepath.Base(path))
}
