package machine

import (
	"io/fs"
	"slices"
	"strings"
)

// inUserNamespace reports whether this process runs in a user namespace other than the initial one. In the initial
// one, every ID is mapped to itself. The result is nil if that cannot be determined.
// https://man7.org/linux/man-pages/man7/user_namespaces.7.html
func inUserNamespace(proc fs.FS) *bool {
	text, err := fs.ReadFile(proc, "self/uid_map")
	if err != nil {
		return nil
	}
	return new(!slices.Equal(strings.Fields(string(text)), []string{"0", "0", "4294967295"}))
}
