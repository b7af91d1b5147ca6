package ctrd

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/untrusted"
	"github.com/islet-edge/islet/runtime/ocispec"
)

// accounts reads the files in /etc as a container will see them, whose own mounts may
// cover them: an OCI runtime looks there for HOME, and runc 1.1 in any case.
func accounts(root string, mounts []*api.Mount) ocispec.ReadFile {
	return func(name string) ([]byte, error) {
		top, below, longest := root, name, 0
		for _, m := range mounts {
			at := filepath.Clean(m.GetContainerPath())
			rest, ok := strings.CutPrefix("/"+name, at)
			if !ok || len(at) < longest {
				continue
			}
			switch {
			case rest == "":
				top, below, longest = "/", m.GetHostPath(), len(at)
			case rest[0] == '/':
				top, below, longest = m.GetHostPath(), rest, len(at)
			}
		}
		return untrusted.ReadInRoot(top, below, ocispec.MaxUserFile)
	}
}

// checkAccounts refuses a container in which an OCI runtime would wait for a FIFO in
// place of /etc/passwd or /etc/group, and hold up the start of others meanwhile, or
// read one of any size into memory. One that a pod puts there after this look is
// waited for as long as a start may take.
func checkAccounts(root string, mounts []*api.Mount) error {
	read := accounts(root, mounts)
	for _, name := range []string{"etc/passwd", "etc/group"} {
		if _, err := read(name); errors.Is(err, untrusted.ErrFIFO) || errors.Is(err, untrusted.ErrTooLarge) {
			return fmt.Errorf("the container's /%s cannot be used: replace it in its image or volume by a regular file of at most %d MiB: %w", name, ocispec.MaxUserFile>>20, err)
		}
	}
	return nil
}

// checkRunning is checkAccounts of a container that runs, by its first process: it may
// have replaced the files since. One that comes after this look is waited for as long
// as a command may take to begin.
func checkRunning(pid int) error {
	for _, name := range []string{"etc/passwd", "etc/group"} {
		f, err := untrusted.OpenInRoot(fmt.Sprintf("/proc/%d/root", pid), name)
		if err == nil {
			st, e := f.Stat()
			if f.Close(); e == nil && st.Size() > ocispec.MaxUserFile {
				err = untrusted.ErrTooLarge
			}
		}
		if errors.Is(err, untrusted.ErrFIFO) || errors.Is(err, untrusted.ErrTooLarge) {
			return fmt.Errorf("the container's /%s cannot be used: replace it by a regular file of at most %d MiB: %w", name, ocispec.MaxUserFile>>20, err)
		}
	}
	return nil
}
