package ctrd

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/islet-edge/islet/runtime/abilities"
	"github.com/islet-edge/islet/runtime/shim/wire"
)

// selectOCI returns the OCI runtime for new containers. If RemoveOnly is set, no
// container starts, so selectOCI returns the first installed OCI runtime without a test. If none is installed, the returned
// path does not exist, and the containers are removed without an OCI runtime.
func (r *Runtime) selectOCI(ctx context.Context) (wire.OCI, error) {
	if !r.c.RemoveOnly {
		return r.chooseOCI(ctx)
	}
	oci := wire.OCI{Path: filepath.Join(r.dirs.program, "no-oci-runtime"), Root: r.dirs.state, Systemd: r.c.SystemdCgroup}
	names := abilities.Programs()
	if r.c.OCIRuntime != "" {
		names = append([]string{r.c.OCIRuntime}, names...)
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			oci.Path = path
			break
		}
	}
	return oci, nil
}

// lacksProgram reports whether the OCI runtime of the sandbox's containers is not installed any more, so that islet's shim
// cannot call it.
func (s *sandbox) lacksProgram() bool {
	if s.tasks != nil {
		return false
	}
	_, err := os.Stat(s.oci.Path)
	return errors.Is(err, os.ErrNotExist)
}

// deleteWithoutProgram removes the OCI runtime's state and the bundle of an ended container. Then it calls forget,
// which deletes the container from the shim. Without a bundle, the shim does not call the OCI runtime.
func (r *Runtime) deleteWithoutProgram(ctx context.Context, s *sandbox, id string, forget func(context.Context, string) error) error {
	if err := r.forceDelete(ctx, s, id); err != nil {
		return err
	}
	if err := r.removeBundle(id); err != nil {
		return err
	}
	return forget(ctx, id)
}
