package ctrd

import (
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/shim/wire"
)

// A runtime handler is a name by which a sandbox asks for an OCI runtime other than
// the node's. The empty name is the node's own. Each handler has its state below a
// directory of its own, for one program must not read what another wrote there. What
// a sandbox runs with is in its record: it ends by the program that began it, also
// when the handler was configured anew since.
// https://kubernetes.io/docs/concepts/containers/runtime-class/

// handler finds the OCI runtime of a name. One that is not configured is refused in
// containerd's words: to run such a pod with another program would take from it the
// isolation that it asks for.
func (r *Runtime) handler(name string) (wire.OCI, error) {
	if name == "" {
		return r.oci, nil
	}
	program, ok := r.c.Handlers[name]
	if !ok {
		return wire.OCI{}, fmt.Errorf("no runtime for %q is configured: this node has %s; runtimeHandlers of the EdgeConfiguration adds one: %w",
			name, r.handlerNames(), errdefs.ErrNotFound)
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return wire.OCI{}, fmt.Errorf("runtime handler %q: %w: install the program, or change runtimeHandlers of the EdgeConfiguration", name, err)
	}
	return r.handlerOCI(name, path), nil
}

func (r *Runtime) handlerOCI(name, path string) wire.OCI {
	return wire.OCI{Path: path, Root: filepath.Join(r.dirs.handlers, name), Systemd: r.c.SystemdCgroup}
}

func (r *Runtime) handlerNames() string {
	if len(r.c.Handlers) == 0 {
		return "none but the default"
	}
	names := slices.Sorted(maps.Keys(r.c.Handlers))
	for i := range names {
		names[i] = fmt.Sprintf("%q", names[i])
	}
	return strings.Join(names, ", ")
}

// handlers lists what CRI's Status shows: the default and each that is configured and
// installed, with what its OCI runtime can do. User namespaces are not built yet.
func (r *Runtime) handlers() []*api.RuntimeHandler {
	out := []*api.RuntimeHandler{{Name: "", Features: r.features(r.oci.Path)}}
	for _, name := range slices.Sorted(maps.Keys(r.c.Handlers)) {
		if path, err := exec.LookPath(r.c.Handlers[name]); err == nil {
			out = append(out, &api.RuntimeHandler{Name: name, Features: r.features(path)})
		}
	}
	return out
}

func (r *Runtime) features(program string) *api.RuntimeHandlerFeatures {
	return &api.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: r.abilities.of(program).readOnlyTrees}
}

// recordedOCI is what a sandbox of an earlier process runs with.
func (r *Runtime) recordedOCI(rec sandboxRecord) wire.OCI {
	if rec.Handler == "" || rec.Program == "" {
		return r.oci
	}
	return r.handlerOCI(rec.Handler, rec.Program)
}

// ociOf is what a sandbox's containers run with.
func (r *Runtime) ociOf(sandbox string) wire.OCI {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sandboxes[sandbox]; s != nil {
		return s.oci
	}
	return r.oci
}
