package machine

import (
	"io/fs"
	"slices"
	"strings"
)

// inUserNamespace reports whether this process runs in a user namespace other than the initial one. It returns nil if
// this is unknown. In the initial user namespace, every ID is mapped to itself.
// https://man7.org/linux/man-pages/man7/user_namespaces.7.html
func inUserNamespace(proc fs.FS) *bool {
	text, err := fs.ReadFile(proc, "self/uid_map")
	if err != nil {
		return nil
	}
	return new(!slices.Equal(strings.Fields(string(text)), []string{"0", "0", "4294967295"}))
}
