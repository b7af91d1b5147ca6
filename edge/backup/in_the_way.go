package backup

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/k3s"
)

// inTheWay returns the paths of the files of another node on this board, and of other files whose places the archive needs, sorted.
func (q *Request) inTheWay(s *Staged, links []link, to map[string]string) (used []string, err error) {
	for _, f := range s.files {
		if path := to[f.name]; exists(path) && !isSame(f, path) {
			used = append(used, path)
		}
	}
	for _, l := range links {
		if exists(l.Path) {
			used = append(used, l.Path)
		}
	}
	for _, dir := range []string{q.Dirs.State, q.Dirs.Cert} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			name, isState := e.Name(), dir == q.Dirs.State
			if isState && isOfNode(name) || !isState && strings.HasPrefix(name, "kubelet") {
				used = append(used, filepath.Join(dir, name))
			}
		}
	}
	if index := filepath.Join(q.Dirs.State, indexRecord); exists(index) {
		used = append(used, index)
	}
	if !exists(filepath.Join(q.Dirs.State, databaseName)) {
		used = append(used, q.images()...)
	}
	used = append(used, clusterFiles(k3s.Root(q.Dirs.State))...)
	targets := slices.Collect(maps.Values(to))
	for _, name := range ofConf {
		if path := filepath.Join(q.Conf, name); q.Conf != "" && exists(path) && !slices.Contains(targets, path) {
			used = append(used, path)
		}
	}
	slices.Sort(used)
	used = slices.Compact(used)
	// A file below a directory that is set aside has no move of its own, which would set its successor aside after a power cut.
	return slices.DeleteFunc(slices.Clone(used), func(path string) bool {
		return slices.ContainsFunc(used, func(dir string) bool { return path != dir && isBelow(path, dir) })
	}), nil
}

// isOfNode reports whether a file of the state directory belongs to one node: a record, the database, the key, with the files from their
// replacement, the bundles, and the data of claims. The restored node finds a claim by its namespace and name, so it would use the data of
// the claim of another node. The other files belong to the board. The images are among them: see imagesDir.
func isOfNode(name string) bool {
	return isRecord(name) || strings.HasPrefix(name, databaseName) || strings.HasPrefix(name, keyName) || slices.Contains(ofNode, name)
}

var ofNode = []string{"bundles", "bundle-report.json", "bundle-source.json", "claims", "configuration.json.broken"}

// imagesDir is the directory of containerd. It stays on a board that becomes another node, with the records of the images that were pulled:
// see store.TakePulls. Without these records every pod could use an image that was pulled with a Secret, so the directory is set aside.
const imagesDir = "containerd"

// images returns the path of the images on this board, if there are any.
func (q *Request) images() []string {
	if path := filepath.Join(q.Dirs.State, imagesDir); exists(path) {
		return []string{path}
	}
	return nil
}

// clusterFiles returns the paths in the directory of the k3s cluster that must be set aside. The directory itself stays, because islet join
// and the caller of Restore lock it. An empty directory belongs to no node.
func clusterFiles(root string) (used []string) {
	if info, err := os.Lstat(root); err == nil && !info.IsDir() {
		return []string{root}
	}
	entries, _ := os.ReadDir(root) // a directory that cannot be read has no place for a file either
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			used = append(used, filepath.Join(root, e.Name()))
		}
	}
	return used
}

// ofConf are files of Request.Conf that make a board a node. Files that the archive lacks are set aside too. Otherwise the restored agent
// would read them, and start under another name or in another cluster.
var ofConf = []string{config.FlagsFile, "kubelet.yaml", "edge.yaml", "kubeconfig", "bootstrap.kubeconfig", "ca.crt"}
