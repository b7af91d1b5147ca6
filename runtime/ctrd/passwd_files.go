package ctrd

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/islet-edge/islet/internal/untrusted"
	"github.com/islet-edge/islet/runtime/ocispec"
)

// accountReader returns a function that reads files in /etc from the container's point of view: a
// file that one of the mounts covers is read from the source of that mount. islet uses this
// function to look up HOME, because an OCI runtime may read the image's /etc/passwd even if a mount
// covers this file. runc 1.1 always does.
func accountReader(root string, mounts []specs.Mount) ocispec.ReadFile {
	return func(name string) ([]byte, error) {
		top, below := locate(root, mounts, "/"+name)
		if top == "" {
			return nil, fs.ErrNotExist
		}
		return untrusted.ReadInRoot(top, below, ocispec.MaxUserFile)
	}
}

// locate finds the host's file for a path in a container. It returns a root directory on the host and the name of the file below that
// directory. The mounts are in the order in which the OCI runtime mounts them. If the path is on a mount that is not a bind mount, such as
// a tmpfs or /proc, the root is "".
func locate(root string, mounts []specs.Mount, path string) (top, below string) {
	for _, m := range slices.Backward(mounts) {
		rest, ok := strings.CutPrefix(path, strings.TrimSuffix(filepath.Clean(m.Destination), "/"))
		switch {
		case !ok || rest != "" && rest[0] != '/':
			continue
		case m.Type != "bind" && !slices.Contains(m.Options, "bind") && !slices.Contains(m.Options, "rbind"):
			return "", ""
		case rest == "":
			return "/", m.Source
		}
		return m.Source, rest
	}
	return root, path
}

// checkAccounts rejects a container whose /etc/passwd or /etc/group is a FIFO or is larger than
// ocispec.MaxUserFile. The OCI runtime would block on a FIFO, which also delays the start of other
// containers, and would read a large file into memory. If the pod replaces a file after this check,
// the timeout of the start limits the damage.
func checkAccounts(root string, mounts []specs.Mount) error {
	read := accountReader(root, mounts)
	for _, name := range []string{"etc/passwd", "etc/group"} {
		if _, err := read(name); errors.Is(err, untrusted.ErrFIFO) || errors.Is(err, untrusted.ErrTooLarge) {
			return fmt.Errorf("the container's /%s cannot be used: "+
				"replace it in its image or volume by a regular file of at most %d MiB: %w",
				name, ocispec.MaxUserFile>>20, err)
		}
	}
	return nil
}

// checkRunningAccounts is like checkAccounts, for a running container, whose files may have been
// replaced since its start. It opens the files through /proc/PID/root of the container's first
// process. If the container replaces a file after this check, execStartTimeout limits the damage.
func checkRunningAccounts(pid int) error {
	for _, name := range []string{"etc/passwd", "etc/group"} {
		f, err := untrusted.OpenInRoot(fmt.Sprintf("/proc/%d/root", pid), name)
		if err == nil {
			st, e := f.Stat()
			f.Close()
			if e == nil && st.Size() > ocispec.MaxUserFile {
				err = untrusted.ErrTooLarge
			}
		}
		if errors.Is(err, untrusted.ErrFIFO) || errors.Is(err, untrusted.ErrTooLarge) {
			return fmt.Errorf("the container's /%s cannot be used: replace it by a regular file of at most %d MiB: %w",
				name, ocispec.MaxUserFile>>20, err)
		}
	}
	return nil
}
