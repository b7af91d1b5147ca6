package ocispec

import (
	"errors"

	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opencontainers/runtime-spec/specs-go"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// version is the newest that every supported OCI runtime reads: crun before 1.9
// refuses later ones.
const version = "1.0.2"

// Input is all that a specification is made of.
type Input struct {
	Sandbox   *api.PodSandboxConfig
	Container *api.ContainerConfig
	Image     imagespec.ImageConfig
	User      specs.User
	Volumes   []Volume // of the image, parents before children
	Namespaces
	Files
	Host
	CgroupsPath string
	AppArmor    string // the profile to run with; empty: none
	// The SELinux labels of the process, and of what the OCI runtime mounts for it;
	// empty: none.
	ProcessLabel, MountLabel string
}

// A Volume is a directory of a container's own for a VOLUME of its image. Its Path is
// absolute, and no component of it is a symlink in the image.
type Volume struct{ Path, Source string }

// Namespaces are the paths of those that the container joins. An empty path of
// users, net, ipc or uts is the host's; an empty PID gives a new one unless HostPID.
type Namespaces struct {
	Users, Net, IPC, UTS, PID string
	HostPID                   bool
	UIDs                      uint32 // how many there are in Users
}

// Files are those of the sandbox on the host that are mounted unless the
// container's own mounts cover their place. An empty path is not mounted.
type Files struct {
	Hosts, Hostname, Resolv, Shm string
}

// Host is what this machine and process allow.
type Host struct {
	Capabilities []string // what a privileged container may have
	MinOOMScore  int      // lower values of oom_score_adj are not allowed
	CgroupV2     bool
	HugePages    bool                // cgroups count them
	Devices      []specs.LinuxDevice // for privileged containers
	Throttles    []string            // directories of /sys that Own masks
	NodeName     string              // the hostname, of pods that have none of their own
}

// Make makes the specification.
func Make(in Input) (*specs.Spec, error) {
	if in.Sandbox == nil || in.Container == nil {
		return nil, errors.New("no sandbox or container configuration")
	}
	sec := in.security()
	args, err := args(in.Container, in.Image)
	if err != nil {
		return nil, err
	}
	caps, err := capabilities(sec, in.Capabilities)
	if err != nil {
		return nil, err
	}
	s := &specs.Spec{
		Version: version,
		Root:    &specs.Root{Path: "rootfs", Readonly: sec.GetReadonlyRootfs()},
		Process: &specs.Process{
			Terminal: in.Container.GetTty(), User: in.User, Args: args, Env: env(in), Cwd: cwd(in.Container, in.Image),
			Capabilities: caps, NoNewPrivileges: sec.GetNoNewPrivs(), OOMScoreAdj: oomScore(in),
			ApparmorProfile: in.AppArmor, SelinuxLabel: in.ProcessLabel,
		},
		Linux: &specs.Linux{
			CgroupsPath: in.CgroupsPath, Namespaces: in.linuxNamespaces(), Resources: Resources(in.Container.GetLinux().GetResources(), in.Host),
			MaskedPaths: sec.GetMaskedPaths(), ReadonlyPaths: sec.GetReadonlyPaths(), MountLabel: in.MountLabel,
		},
	}
	if s.Linux.Resources == nil {
		s.Linux.Resources = &specs.LinuxResources{}
	}
	if sec.GetPrivileged() {
		s.Linux.MaskedPaths, s.Linux.ReadonlyPaths = nil, nil
	}
	if err := devices(in, s); err != nil {
		return nil, err
	}
	mounts(in, s)
	if err := seccompProfile(sec, s); err != nil {
		return nil, err
	}
	return s, nil
}

func (in Input) security() *api.LinuxContainerSecurityContext {
	return in.Container.GetLinux().GetSecurityContext()
}

func (in Input) linuxNamespaces() []specs.LinuxNamespace {
	out := []specs.LinuxNamespace{{Type: specs.MountNamespace}}
	add := func(t specs.LinuxNamespaceType, path string) {
		if path != "" {
			out = append(out, specs.LinuxNamespace{Type: t, Path: path})
		}
	}
	add(specs.UserNamespace, in.Users)
	add(specs.NetworkNamespace, in.Net)
	add(specs.IPCNamespace, in.IPC)
	add(specs.UTSNamespace, in.UTS)
	if !in.HostPID {
		out = append(out, specs.LinuxNamespace{Type: specs.PIDNamespace, Path: in.PID})
	}
	if in.CgroupV2 && !in.security().GetPrivileged() {
		out = append(out, specs.LinuxNamespace{Type: specs.CgroupNamespace})
	}
	return out
}

func oomScore(in Input) *int {
	v := max(int(in.Container.GetLinux().GetResources().GetOomScoreAdj()), in.MinOOMScore)
	return &v
}
