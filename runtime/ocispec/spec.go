package ocispec

import (
	"errors"

	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opencontainers/runtime-spec/specs-go"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// version is the newest version of the specification that all supported OCI runtimes accept. crun
// before 1.9 rejects later versions.
const version = "1.0.2"

// Input contains everything from which NewSpec derives a specification.
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
	// ProcessLabel and MountLabel are the SELinux labels of the process and of the file systems
	// that the OCI runtime mounts. They may be empty.
	ProcessLabel, MountLabel string
	// HostOptions contains the options of the host's mounts, which the bind mounts keep. The key is the host path of the mount.
	HostOptions map[string][]string
}

// A Volume is a directory for one VOLUME of an image. Source is the directory on the host. Path is the path of the
// volume in the container; it is absolute, and contains no symlinks of the image.
type Volume struct{ Path, Source string }

// Namespaces contains the paths of the namespaces that the container joins. An empty path means the
// host's namespace. For PID, an empty path means a new namespace, or the host's if HostPID is set.
type Namespaces struct {
	Users, Net, IPC, UTS, PID string
	HostPID                   bool
	UIDs                      uint32 // number of IDs in Users
}

// Files contains the host paths of files of the sandbox. A file is mounted unless its path is empty
// or the container's configuration has a mount at the same path.
type Files struct {
	Hosts, Hostname, Resolv, Shm string
}

// Host contains properties of this host and of this process.
type Host struct {
	Capabilities []string // for privileged containers
	MinOOMScore  int      // minimum oom_score_adj that this process may set
	CgroupV2     bool
	HugePages    bool                // whether cgroups have the hugetlb controller
	Devices      []specs.LinuxDevice // for privileged containers
	Throttles    []string            // directories of /sys that NewPauseSpec masks
	NodeName     string              // hostname of pods in the host's UTS namespace
}

// NewSpec returns the OCI runtime specification of a container.
func NewSpec(in Input) (*specs.Spec, error) {
	if in.Sandbox == nil || in.Container == nil {
		return nil, errors.New("no sandbox or container configuration")
	}
	sec := in.securityContext()
	args, err := mergeArgs(in.Container, in.Image)
	if err != nil {
		return nil, err
	}
	caps, err := containerCaps(sec, in.Capabilities)
	if err != nil {
		return nil, err
	}
	s := &specs.Spec{
		Version: version,
		Root:    &specs.Root{Path: "rootfs", Readonly: sec.GetReadonlyRootfs()},
		Process: &specs.Process{
			Terminal: in.Container.GetTty(), User: in.User, Args: args, Env: containerEnv(in), Cwd: workingDir(in.Container, in.Image),
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
	if err := addDevices(in, s); err != nil {
		return nil, err
	}
	if err := addRealTime(in.Container, s); err != nil {
		return nil, err
	}
	addMounts(in, s)
	if err := seccompProfile(sec, s); err != nil {
		return nil, err
	}
	return s, nil
}

func (in Input) securityContext() *api.LinuxContainerSecurityContext {
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
	if in.CgroupV2 && !in.securityContext().GetPrivileged() {
		out = append(out, specs.LinuxNamespace{Type: specs.CgroupNamespace})
	}
	return out
}

func oomScore(in Input) *int {
	v := max(int(in.Container.GetLinux().GetResources().GetOomScoreAdj()), in.MinOOMScore)
	return &v
}
