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
	"github.com/islet-edge/islet/runtime/taskshim"
)

// A runtime handler is a name by which a sandbox asks to be run by something else than
// the node's own OCI runtime: by another one, or by a containerd shim. The empty name is
// the node's own. Each handler has its state below a directory of its own, for one
// program must not read what another wrote there. What a sandbox runs with is in its
// record: it ends by the program that began it, also when the handler was configured
// anew since.
// https://kubernetes.io/docs/concepts/containers/runtime-class/

// A Handler has a program: an absolute path, or a name to be found in PATH.
type Handler struct {
	OCIRuntime string // takes runc's command line
	Shim       string // a containerd shim; one of both is set
	ShimConfig string // path of the shim's configuration; may be empty
}

func (h Handler) lookPath() (string, error) {
	if h.Shim != "" {
		return exec.LookPath(h.Shim)
	}
	return exec.LookPath(h.OCIRuntime)
}

// runsWith is what a sandbox is run with.
type runsWith struct {
	oci     wire.OCI // of a containerd shim: what it runs, if it is runc's
	program string
	tasks   bool   // the program is a containerd shim
	config  string // for that
}

// handler finds what a name stands for. One that is not configured is refused in
// containerd's words: to run such a pod with another program would take from it the
// isolation that it asks for.
func (r *Runtime) handler(name string) (runsWith, error) {
	if name == "" {
		return runsWith{oci: r.oci, program: r.oci.Path}, nil
	}
	h, ok := r.c.Handlers[name]
	if !ok {
		return runsWith{}, fmt.Errorf("no runtime for %q is configured: this node has %s; runtimeHandlers of the EdgeConfiguration adds one: %w",
			name, r.handlerNames(), errdefs.ErrNotFound)
	}
	path, err := h.lookPath()
	if err != nil {
		return runsWith{}, fmt.Errorf("runtime handler %q: %w: install the program, or change runtimeHandlers of the EdgeConfiguration", name, err)
	}
	if h.Shim != "" {
		return runsWith{oci: r.taskOCI(name, path), program: path, tasks: true, config: h.ShimConfig}, nil
	}
	return runsWith{oci: r.handlerOCI(name, path), program: path}, nil
}

// taskOCI is what containerd-shim-runc runs: the node's own OCI runtime. It has no path
// for other shims.
func (r *Runtime) taskOCI(name, program string) wire.OCI {
	return wire.OCI{Path: r.runsBy(program, true), Root: filepath.Join(r.dirs.tasks, "oci", name), Systemd: r.c.SystemdCgroup}
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
// installed, with what its OCI runtime can do.
func (r *Runtime) handlers() []*api.RuntimeHandler {
	out := []*api.RuntimeHandler{{Name: "", Features: r.features(r.oci.Path, false)}}
	for _, name := range slices.Sorted(maps.Keys(r.c.Handlers)) {
		h := r.c.Handlers[name]
		path, err := h.lookPath()
		if err != nil {
			continue
		}
		out = append(out, &api.RuntimeHandler{Name: name, Features: r.features(r.runsBy(path, h.Shim != ""), h.Shim != "")})
	}
	return out
}

// runsBy is the OCI runtime whose abilities a handler's program has; "" for a containerd
// shim that runs containers by other means than runc.
func (r *Runtime) runsBy(program string, tasks bool) string {
	switch {
	case !tasks:
		return program
	case taskshim.IsRunc(program):
		return r.oci.Path
	}
	return ""
}

// features are what an OCI runtime can do, called by islet's own shim or by containerd's.
func (r *Runtime) features(program string, tasks bool) *api.RuntimeHandlerFeatures {
	a := r.abilities.Of(program)
	return &api.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: a.ReadOnlyTrees, UserNamespaces: a.Users && !tasks && r.shifts() == nil}
}

// recordedOCI is what a sandbox of an earlier process runs with.
func (r *Runtime) recordedOCI(rec sandboxRecord) wire.OCI {
	switch {
	case rec.Program == "": // of an earlier islet
		return r.oci
	case rec.Handler == "":
		return wire.OCI{Path: rec.Program, Root: r.dirs.state, Systemd: r.c.SystemdCgroup}
	case rec.Tasks:
		return r.taskOCI(rec.Handler, rec.Program)
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
