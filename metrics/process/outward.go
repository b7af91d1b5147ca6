package process

import (
	"os"
	"path/filepath"
)

// Outward are those of the machine's interfaces that lead out of it: those of hardware, whatever
// their names. Where there are none, as in a container, all but those of pods' bridges count. sys
// is where sysfs is mounted.
func Outward(sys string, all []Interface) (out []Interface) {
	for _, i := range all {
		if exists(sys, i.Name, "device") {
			out = append(out, i)
		}
	}
	if len(out) > 0 {
		return out
	}
	for _, i := range all {
		if !exists(sys, i.Name, "bridge") && !exists(sys, i.Name, "master") && !exists(sys, i.Name, "brport") {
			out = append(out, i)
		}
	}
	return out
}

func exists(sys, link, file string) bool {
	_, err := os.Lstat(filepath.Join(sys, "class/net", link, file))
	return err == nil
}
