package ocispec

import (
	"errors"

	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opencontainers/runtime-spec/specs-go"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// version is the newest version that every supported OCI runtime accepts. crun before 1.9 rejects
// later ones.
const version = "1.0.2"

// Input contains everything on which a specification depends.
type Input struct {
	Sandbox   *api.PodSandboxConfig
	Container *api.ContainerConfig
	Image     imagespec.ImageConfig
	User      specs.User
	Volumes   []Volume // volumes of the image, parents first
	Namespaces
	Files
	Host
	CgroupsPath string
	AppArmor    string // name of the profile, or empty
	// SELinux labels of the process and of the file systems that the OCI runtime mounts for it, or
	// empty.
	ProcessLabel, MountLabel string
}

// A Volume is the directory of a container for one VOLUME of its image. Path is absolute. None of
// its components is a symlink in the image.
type Volume struct{ Path, Source string }

// Namespaces are the paths of the namespaces that the container joins. An empty path of Users, Net,
// IPC or UTS means the host's namespace. An empty PID means a new namespace, unless HostPID is set.
type Namespaces struct {
	Users, Net, IPC, UTS, PID string
	HostPID                   bool
	UIDs                      uint32 // number of IDs in Users
}

// Files are the host paths of the sandbox's files. A file is mounted unless its path is empty or
// the container's own mounts cover it.
type Files struct {
	Hosts, Hostname, Resolv, Shm string
}

// Host describes the abilities of this host and this process.
type Host struct {
	Capabilities []string // for privileged containers
	MinOOMScore  int      // the lowest oom_score_adj that this process may set
	CgroupV2     bool
	HugePages    bool                // whether cgroups have the hugetlb controller
	Devices      []specs.LinuxDevice // for privileged containers
	Throttles    []string            // directories of /sys that Own masks
	NodeName     string              // hostname for pods that specify none
}

// Make returns the specification.
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
			CgroupsPath: in.CgroupsPath, Namespaces: in.linuxNamespaces(),
			Resources:   Resources(in.Container.GetLinux().GetResources(), in.Host),
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
