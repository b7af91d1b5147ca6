package ctrd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/islet-edge/islet/internal/untrusted"
	"github.com/islet-edge/islet/runtime/mounts"
	"github.com/islet-edge/islet/runtime/ocispec"
)

// accountReader returns a function that reads files in /etc from the container's point of view: a
// file that one of the mounts covers is read from the source of that mount. islet uses this
// function to look up HOME, because an OCI runtime may read the image's /etc/passwd even if a mount
// covers this file. runc 1.1 always does.
func accountReader(root string, all []specs.Mount) ocispec.ReadFile {
	return func(name string) ([]byte, error) {
		top, below := locate(root, all, "/"+name)
		if top == "" {
			return nil, fs.ErrNotExist
		}
		return untrusted.ReadInRoot(top, below, ocispec.MaxUserFile)
	}
}

// locate finds the host's file for a path in a container. It returns a root directory on the host and the name of the file below that
// directory. The mounts are in the order in which the OCI runtime mounts them. If the path is on a mount that is not a bind mount, such as
// a tmpfs or /proc, the root is "".
func locate(root string, all []specs.Mount, path string) (top, below string) {
	for _, m := range slices.Backward(all) {
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
func checkAccounts(root string, all []specs.Mount) error {
	read := accountReader(root, all)
	for _, name := range []string{"etc/passwd", "etc/group"} {
		if _, err := read(name); errors.Is(err, untrusted.ErrFIFO) || errors.Is(err, untrusted.ErrTooLarge) {
			return fmt.Errorf("the container's /%s cannot be used: "+
				"replace it in its image or volume with a regular file of at most %d MiB: %w",
				name, ocispec.MaxUserFile>>20, err)
		}
	}
	return nil
}

// checkAccountsWithTimeout calls checkRunningAccounts in a goroutine. The container may have mounted a file of a volume whose server does
// not answer, so the check may block. At the end of ctx, and at the latest after execStartTimeout, checkAccountsWithTimeout returns while
// the check continues. At most one check is running for each container, so a probe that is repeated for days occupies one goroutine.
func (r *Runtime) checkAccountsWithTimeout(ctx context.Context, id string, pid int) error {
	ctx, stop := context.WithTimeout(ctx, execStartTimeout)
	defer stop()
	key := "the accounts of " + id
	err := r.ops.LockContext(ctx, key)
	if err == nil {
		checked := make(chan error, 1)
		go func() {
			defer r.ops.Unlock(key)
			checked <- checkRunningAccounts(pid)
		}()
		select {
		case err := <-checked:
			return err
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return fmt.Errorf("the volume with its /etc/passwd or /etc/group does not answer: %w", err)
}

// checkRunningAccounts is like checkAccounts, for a running container, whose files may have been
// replaced since its start. It opens the files through /proc/PID/root of the container's first
// process. The files may be links to volumes, so each volume is checked before it is accessed. If
// the container replaces a file after this check, execStartTimeout limits the damage.
func checkRunningAccounts(pid int) error {
	root := fmt.Sprintf("/proc/%d/root", pid)
	for _, name := range []string{"etc/passwd", "etc/group"} {
		f, err := untrusted.OpenAcrossMounts(root, name, func(path string) {
			_ = mounts.CheckResponding(path) // the open reports an error
		})
		if err == nil {
			st, e := f.Stat()
			f.Close()
			if e == nil && st.Size() > ocispec.MaxUserFile {
				err = untrusted.ErrTooLarge
			}
		}
		if errors.Is(err, untrusted.ErrFIFO) || errors.Is(err, untrusted.ErrTooLarge) {
			return fmt.Errorf("the container's /%s cannot be used: replace it with a regular file of at most %d MiB: %w",
				name, ocispec.MaxUserFile>>20, err)
		}
	}
	return nil
}
