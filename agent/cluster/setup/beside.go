package setup

import (
	"path/filepath"
	"strings"

	"github.com/islet-edge/islet/internal/config"
)

// beside returns the names of the files next to islet.yaml that islet.yaml names: the configurations.
func (b *Board) beside() (names []string) {
	for _, name := range []string{b.KubeletConfiguration, b.EdgeConfiguration} {
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

// isBesideName reports whether islet.yaml may use the name for a file next to it.
func isBesideName(name string) bool {
	return filepath.Base(name) == name && !strings.HasPrefix(name, ".") && len(name) <= 100
}

// besideDigest returns the digest of a file next to islet.yaml, or "" if it cannot be read.
func besideDigest(file, name string) string {
	data, err := readFile(filepath.Join(filepath.Dir(file), name), maxBeside)
	if err != nil {
		return ""
	}
	return sum(data)
}

// isBesideChanged reports whether a file that islet.yaml names has changed since islet.yaml was applied.
func (r *record) isBesideChanged(file string) bool {
	for name, digest := range r.Beside {
		if besideDigest(file, name) != digest {
			return true
		}
	}
	return false
}

// adoptBeside completes a record of an older version, which has no digests of the files that islet.yaml names. The present contents of
// these files then count as applied. adoptBeside reports whether it has added a digest.
func (r *record) adoptBeside(file string, data []byte) bool {
	if r.Beside != nil {
		return false
	}
	var b Board
	if config.Decode(file, data, APIVersion, Kind, &b) != nil {
		return false
	}
	found := map[string]string{}
	for _, name := range b.beside() {
		if isBesideName(name) {
			found[name] = besideDigest(file, name)
		}
	}
	r.Beside = found
	return len(found) > 0
}
