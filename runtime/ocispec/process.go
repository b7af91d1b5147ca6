package ocispec

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opencontainers/runtime-spec/specs-go"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// DefaultCapabilities contains the default capabilities of a container. Docker and containerd use
// the same list. CRI-O uses nine of them.
var DefaultCapabilities = []string{
	"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD",
	"CAP_NET_BIND_SERVICE", "CAP_NET_RAW", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT",
}

// mergeArgs merges command and args with the image's ENTRYPOINT and CMD. command replaces both, and args
// replaces only CMD. An ENTRYPOINT of one empty word counts as unset: images use it to clear the
// ENTRYPOINT of their base image.
// https://kubernetes.io/docs/tasks/inject-data-application/define-command-argument-container
func mergeArgs(c *api.ContainerConfig, image imagespec.ImageConfig) ([]string, error) {
	command, args := c.GetCommand(), c.GetArgs()
	if len(command) == 0 {
		if command = image.Entrypoint; len(command) == 1 && command[0] == "" {
			command = nil
		}
		if len(args) == 0 {
			args = image.Cmd
		}
	}
	all := slices.Concat(command, args)
	if len(all) == 0 {
		return nil, errors.New("no command is specified, neither by the container nor by its image")
	}
	return all, nil
}

// containerEnv returns the environment of the container: PATH, TERM and HOSTNAME, then the variables of the
// image, then the variables of the container's configuration. For variables of the same name, the last one
// is used. A name without "=" in the image removes the variable.
func containerEnv(in Input) []string {
	var out []string
	index := map[string]int{} // an image may have very many variables
	set := func(kv string) {
		name, _, hasValue := strings.Cut(kv, "=")
		i, known := index[name]
		switch {
		case !hasValue && known:
			out[i] = ""
		case hasValue && known:
			out[i] = kv
		case hasValue:
			index[name], out = len(out), append(out, kv)
		}
	}
	set(defaultPath)
	if in.Container.GetTty() {
		set("TERM=xterm")
	}
	if h := cmp.Or(in.Sandbox.GetHostname(), in.NodeName); h != "" {
		set("HOSTNAME=" + h)
	}
	for _, kv := range in.Image.Env {
		set(kv)
	}
	for _, e := range in.Container.GetEnvs() {
		set(e.GetKey() + "=" + string(e.GetValue()))
	}
	return slices.DeleteFunc(out, func(kv string) bool { return kv == "" })
}

// SetHome sets HOME unless it is already set. Call it after CDI devices were added, because they
// may set HOME. An OCI runtime also adds HOME last.
func SetHome(spec *specs.Spec, home string) {
	if !slices.ContainsFunc(spec.Process.Env, func(kv string) bool { return strings.HasPrefix(kv, "HOME=") }) {
		spec.Process.Env = append(spec.Process.Env, "HOME="+home)
	}
}

func workingDir(c *api.ContainerConfig, image imagespec.ImageConfig) string {
	switch {
	case c.GetWorkingDir() != "":
		return c.GetWorkingDir()
	case image.WorkingDir != "":
		return image.WorkingDir
	}
	return "/"
}
