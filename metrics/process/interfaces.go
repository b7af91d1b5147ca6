package process

import (
	"os"
	"path/filepath"
)

// ExternalInterfaces returns the interfaces that connect the machine to other machines. These are the interfaces with a hardware device. If
// there are no such interfaces, as in a container, it returns all interfaces except bridges and their ports. It reads sysfs at the given
// mount point.
func ExternalInterfaces(sys string, all []Interface) (out []Interface) {
	for _, i := range all {
		if linkFileExists(sys, i.Name, "device") {
			out = append(out, i)
		}
	}
	if len(out) > 0 {
		return out
	}
	for _, i := range all {
		if !linkFileExists(sys, i.Name, "bridge") && !linkFileExists(sys, i.Name, "master") && !linkFileExists(sys, i.Name, "brport") {
			out = append(out, i)
		}
	}
	return out
}

func linkFileExists(sys, link, file string) bool {
	_, err := os.Lstat(filepath.Join(sys, "class/net", link, file))
	return err == nil
}
