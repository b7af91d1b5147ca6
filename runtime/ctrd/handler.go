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

// A runtime handler is a name by which a sandbox requests an OCI runtime other than the node's default, or
// a containerd shim. The empty name is the default. Each handler has its own state directory, because a
// program must not read the state of another program. The record of a sandbox contains the program that
// started the sandbox. So the same program also ends the sandbox, even if the handler's configuration has
// changed since. https://kubernetes.io/docs/concepts/containers/runtime-class/

// A Handler names a program by its absolute path, or by a name that is looked up in PATH. Exactly
// one of OCIRuntime and Shim is set.
type Handler struct {
	OCIRuntime string // a program with runc's command line
	Shim       string // a containerd shim
	ShimConfig string // path of the shim's configuration file, or empty
}

func (h Handler) lookPath() (string, error) {
	if h.Shim != "" {
		return exec.LookPath(h.Shim)
	}
	return exec.LookPath(h.OCIRuntime)
}

// A sandboxProgram is the program that runs a sandbox.
type sandboxProgram struct {
	oci     wire.OCI // if the program is runc's containerd shim, the OCI runtime that it calls
	program string
	tasks   bool   // whether the program is a containerd shim
	config  string // configuration file of the containerd shim
}

// findHandler returns the program of a handler. An unknown name is an error with containerd's wording.
// There is no fallback, because another program would lack the isolation that the pod requests.
func (r *Runtime) findHandler(name string) (sandboxProgram, error) {
	if name == "" {
		return sandboxProgram{oci: r.oci, program: r.oci.Path}, nil
	}
	h, ok := r.c.Handlers[name]
	if !ok {
		return sandboxProgram{}, fmt.Errorf("no runtime for %q is configured: this node has %s; "+
			"runtimeHandlers of the EdgeConfiguration adds one: %w",
			name, r.handlerNames(), errdefs.ErrNotFound)
	}
	path, err := h.lookPath()
	if err != nil {
		return sandboxProgram{},
			fmt.Errorf("runtime handler %q: %w: install the program, or change runtimeHandlers of the EdgeConfiguration",
				name, err)
	}
	if h.Shim != "" {
		return sandboxProgram{oci: r.taskOCI(name, path), program: path, tasks: true, config: h.ShimConfig}, nil
	}
	return sandboxProgram{oci: r.handlerOCI(name, path), program: path}, nil
}

// taskOCI returns the OCI runtime that containerd-shim-runc calls, which is the node's default. For
// other shims, the path in the result is empty.
func (r *Runtime) taskOCI(name, program string) wire.OCI {
	return wire.OCI{Path: r.ociPathOf(program, true), Root: filepath.Join(r.dirs.tasks, "oci", name), Systemd: r.c.SystemdCgroup}
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

// listHandlers returns the runtime handlers for the CRI's Status. These are the default and every
// configured handler that is installed, each with the features of its OCI runtime.
func (r *Runtime) listHandlers() []*api.RuntimeHandler {
	out := []*api.RuntimeHandler{{Name: "", Features: r.handlerFeatures(r.oci.Path, false)}}
	for _, name := range slices.Sorted(maps.Keys(r.c.Handlers)) {
		h := r.c.Handlers[name]
		path, err := h.lookPath()
		if err != nil {
			continue
		}
		out = append(out, &api.RuntimeHandler{Name: name, Features: r.handlerFeatures(r.ociPathOf(path, h.Shim != ""), h.Shim != "")})
	}
	return out
}

// ociPathOf returns the path of the OCI runtime that determines the features of a handler. It
// returns "" for a containerd shim that does not call runc.
func (r *Runtime) ociPathOf(program string, tasks bool) string {
	switch {
	case !tasks:
		return program
	case taskshim.IsRunc(program):
		return r.oci.Path
	}
	return ""
}

// handlerFeatures returns the features of an OCI runtime. User namespaces are not supported if a containerd shim calls the OCI runtime.
func (r *Runtime) handlerFeatures(program string, tasks bool) *api.RuntimeHandlerFeatures {
	a := r.abilities.Get(program)
	return &api.RuntimeHandlerFeatures{
		RecursiveReadOnlyMounts: a.ReadOnlyTrees, UserNamespaces: a.Users && !tasks && r.checkShift() == nil,
	}
}

// recordedOCI returns the OCI runtime of a sandbox that an earlier process created.
func (r *Runtime) recordedOCI(rec sandboxRecord) wire.OCI {
	switch {
	case rec.Program == "": // an earlier version of islet wrote the record
		return r.oci
	case rec.Handler == "":
		return wire.OCI{Path: rec.Program, Root: r.dirs.state, Systemd: r.c.SystemdCgroup}
	case rec.Tasks:
		return r.taskOCI(rec.Handler, rec.Program)
	}
	return r.handlerOCI(rec.Handler, rec.Program)
}

// ociOf returns the OCI runtime of a sandbox's containers.
func (r *Runtime) ociOf(sandbox string) wire.OCI {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sandboxes[sandbox]; s != nil {
		return s.oci
	}
	return r.oci
}
