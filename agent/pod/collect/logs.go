package collect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/runtime/mounts"
)

// Logs is a hook that removes the log directory of a pod when the pod is released.
type Logs struct {
	Dir string // directory of all pods' logs: /var/log/pods
}

// Name returns the name of the hook.
func (Logs) Name() string { return "logs" }

// Release removes the pod's log directory, <namespace>_<name>_<uid>.
func (l Logs) Release(_ context.Context, uid types.UID) error {
	return l.remove(func(u types.UID) bool { return u == uid })
}

// Sweep removes the log directories of the pods that need not be kept, as decided by the given function.
func (l Logs) Sweep(_ context.Context, keep func(types.UID) bool) error {
	return l.remove(func(u types.UID) bool { return !keep(u) })
}

func (l Logs) remove(unwanted func(types.UID) bool) error {
	entries, err := os.ReadDir(l.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list the pods' log directories: %w", err)
	}
	var errs []error
	for _, e := range entries {
		part := strings.Split(e.Name(), "_") // namespace, name and UID contain no underscore
		if len(part) == 3 && e.IsDir() && unwanted(types.UID(part[2])) {
			errs = append(errs, mounts.RemoveAll(filepath.Join(l.Dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}
