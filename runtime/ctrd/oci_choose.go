package ctrd

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/abilities"
	"github.com/islet-edge/islet/runtime/mounts"
	"github.com/islet-edge/islet/runtime/ocispec"
	"github.com/islet-edge/islet/runtime/shim"
	"github.com/islet-edge/islet/runtime/shim/wire"
)

// chooseOCI selects the OCI runtime. If the configuration names none, it runs a container with each
// candidate. The result is cached until the next boot, or until the program changes.
func (r *Runtime) chooseOCI(ctx context.Context) (wire.OCI, error) {
	oci := wire.OCI{Root: r.dirs.state, Systemd: r.c.SystemdCgroup}
	if r.c.OCIRuntime != "" {
		path, err := exec.LookPath(r.c.OCIRuntime)
		if err != nil {
			return oci, fmt.Errorf("OCI runtime %s: %w", r.c.OCIRuntime, err)
		}
		oci.Path = path
		return oci, nil
	}
	var errs []error
	var tried []string
	for _, name := range abilities.Programs() {
		path, err := exec.LookPath(name)
		if err == nil {
			oci.Path = path
			tried = append(tried, path)
			err = r.probeOCI(ctx, oci)
		}
		if err == nil {
			return oci, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", name, err))
	}
	for _, path := range tried { // forget the results: the host may be repaired before the next start
		os.Remove(r.probeCache(path))
	}
	if len(tried) == 0 {
		return oci, fmt.Errorf("there is no OCI runtime on this host; install islet's packages, crun or runc: %w", errors.Join(errs...))
	}
	return oci, fmt.Errorf("no OCI runtime can run a container on this host (islet doctor finds the cause): %w", errors.Join(errs...))
}

// readOCIVersion returns the version in the first line of the OCI runtime's --version, such as "1.8.1"
// for "crun version 1.8.1". It returns "" if the version is unknown.
func (r *Runtime) readOCIVersion() string {
	ctx, cancel := context.WithTimeout(context.Background(), versionTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, r.oci.Path, "--version").Output()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(out), "\n")
	_, version, _ := strings.Cut(line, " version ")
	return strings.TrimSpace(version)
}

// versionTimeout is the timeout of the --version call.
const versionTimeout = 5 * time.Second

// probeOCI tests an OCI runtime by running a container that exits immediately. If a cached result
// exists, it is returned instead.
func (r *Runtime) probeOCI(ctx context.Context, oci wire.OCI) error {
	st, err := os.Stat(oci.Path)
	if err != nil {
		return err
	}
	cache := r.probeCache(oci.Path)
	key := fmt.Sprintf("%s %d %d %t\n", oci.Path, st.Size(), st.ModTime().UnixNano(), oci.Systemd)
	if b, err := os.ReadFile(cache); err == nil {
		if result, ok := strings.CutPrefix(string(b), key); ok {
			if result == "" {
				return nil
			}
			return errors.New(result)
		}
	}
	result := ""
	err = r.tryOCI(ctx, oci)
	if err != nil {
		result = err.Error()
		r.log.Info("an OCI runtime does not work on this host", "runtime", oci.Path, "error", err)
	}
	if ctx.Err() == nil {
		os.WriteFile(cache, []byte(key+result), 0o600) // if this fails, the next start runs the container again
	}
	return err
}

func (r *Runtime) probeCache(path string) string {
	return filepath.Join(r.c.RunDir, "oci-"+strings.ReplaceAll(strings.TrimPrefix(path, "/"), "/", "-")+".probe")
}

// stateFiles are the names of the state files of crun and runc. The two programs have a common
// state directory, but neither can read the state of the other. The name of the file shows which of
// the two programs created a container.
var stateFiles = map[string]string{"crun": "status", "runc": "state.json"}

// ociOfState returns the OCI runtime of a container of the default handler, for a record that does
// not name the OCI runtime. The container's state files show whether crun or runc created the
// container. If it has no state files, the result is the current default. The default depends on
// the installed programs, so it may have changed since the container was created.
func (r *Runtime) ociOfState(id string) wire.OCI {
	oci := r.oci
	if _, known := stateFiles[filepath.Base(oci.Path)]; !known {
		return oci
	}
	for name, file := range stateFiles {
		if _, err := os.Stat(filepath.Join(r.dirs.state, id, file)); err != nil || name == filepath.Base(oci.Path) {
			continue
		}
		for _, program := range abilities.Programs() {
			if path, err := exec.LookPath(program); err == nil && filepath.Base(path) == name {
				oci.Path = path
				return oci
			}
		}
	}
	return oci
}

func (r *Runtime) tryOCI(ctx context.Context, oci wire.OCI) error {
	// The ID is random. An ID with the PID of the agent would not be unique, because an agent in another PID namespace may have the same
	// PID.
	id := "probe-" + strings.ToLower(rand.Text())
	bundle := r.bundlePath(id)
	defer r.removeBundle(id)
	if err := os.MkdirAll(filepath.Join(bundle, "rootfs"), 0o755); err != nil {
		return err
	}
	cgroup := "/islet-" + id // at the root, because the OCI runtime does not remove parents that it creates
	if oci.Systemd {
		cgroup = "system.slice:islet:" + id
	}
	spec, err := ocispec.NewPauseSpec(ocispec.Input{
		Sandbox: &api.PodSandboxConfig{}, Host: r.host, CgroupsPath: cgroup, Container: r.ownContainer("true"),
	})
	if err != nil {
		return err
	}
	spec.Linux.Seccomp = nil // an OCI runtime without seccomp support can still run most pods
	b, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), b, 0o600); err != nil {
		return err
	}
	out, err := ociCommand(ctx, oci, "run", "--bundle", bundle, id).CombinedOutput()
	if err != nil {
		ociCommand(context.WithoutCancel(ctx), oci, "delete", "--force", id).Run()
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

func ociCommand(ctx context.Context, oci wire.OCI, args ...string) *exec.Cmd {
	global := []string{"--root", oci.Root}
	if oci.Systemd {
		global = append(global, "--systemd-cgroup")
	}
	cmd := exec.CommandContext(ctx, oci.Path, append(global, args...)...)
	cmd.Env = shim.Environ()
	return cmd
}

// deleteDelay is how long to wait for the output of the OCI runtime's command delete after its end. A process that it has left may keep the
// output open.
const deleteDelay = 2 * time.Second

// ociDelete kills a container and removes its state by calling the OCI runtime directly, without a
// shim. Missing state is not an error.
func (r *Runtime) ociDelete(ctx context.Context, oci wire.OCI, id string) error {
	state := filepath.Join(oci.Root, id)
	required := state
	if oci.Root != r.dirs.state {
		required = oci.Root // other OCI runtimes may use other paths below it
	}
	if _, err := os.Stat(required); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	cmd := ociCommand(ctx, oci, "delete", "--force", id)
	cmd.WaitDelay = deleteDelay
	out, err := cmd.CombinedOutput()
	_, gone := os.Stat(state)
	switch {
	case oci.Root == r.dirs.state && errors.Is(gone, os.ErrNotExist):
		return nil
	case errors.Is(err, os.ErrNotExist): // the program of a handler was uninstalled; the processes end when the pod's cgroup is removed
		r.log.Error("the OCI runtime of a container is not installed any more: its processes end when its pod ends",
			"container", id, "program", oci.Path)
	case err != nil:
		return fmt.Errorf("delete container %s: %w: %s", id, err, strings.TrimSpace(string(out)))
	}
	if err := mounts.DetachBelow(state); err != nil && !errors.Is(err, os.ErrNotExist) { // see dropClones
		return fmt.Errorf("delete container %s: %w", id, err)
	}
	return mounts.RemoveAll(state)
}
