package status

import (
	"context"
	"net/http"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	crapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/agent/kubelet/server/response"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/podspec"
)

// Pods returns the pods of this node.
type Pods interface {
	List() []*v1.Pod
}

// Runtime reports the state of the container runtime. cri.Runtime implements it.
type Runtime interface {
	Version(context.Context, *crapi.VersionRequest) (*crapi.VersionResponse, error)
	Status(context.Context, *crapi.StatusRequest) (*crapi.StatusResponse, error)
	ListPodSandbox(context.Context, *crapi.ListPodSandboxRequest) (*crapi.ListPodSandboxResponse, error)
}

// Config configures a Status. The functions may be nil, except LastLine.
type Config struct {
	Version, Name string
	Started       time.Time
	Disks         []string // directories whose file systems the status contains
	Pods          Pods
	Runtime       Runtime
	// Describe adds information about other parts of the node.
	Describe func(ctx context.Context, s *api.Status)
	// IgnoredFields returns the fields of a pod that have no effect on this node, and a sentence about each of them.
	IgnoredFields func(*v1.Pod) (fields, sentences []string)
	// PortConflicts returns one sentence for each host port of the pods at which a program of the host listens.
	PortConflicts func(pods []*v1.Pod) map[types.UID][]string
	// LastLine returns the last line of the log of a container, or "" if there is none. If the name is empty, the container is the first
	// one that has ended with the given exit code.
	LastLine func(ctx context.Context, pod *v1.Pod, container string, code int32) string
	// Settings returns the agent's settings as a value that can be encoded as JSON.
	Settings func() any
}

// Status serves the status of the node.
type Status struct{ Config }

// New returns a Status.
func New(c Config) *Status { return &Status{c} }

// Paths returns the handlers by pattern.
func (s *Status) Paths() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"GET " + api.PathStatus:   response.JSON(s.getStatus),
		"GET " + api.PathSettings: response.JSON(s.getSettings),
	}
}

// getStatus returns the node's status.
func (s *Status) getStatus(r *http.Request) (any, error) {
	pods := s.Pods.List()
	st := &api.Status{Version: s.Version, Node: s.Name, Started: s.Started, Now: time.Now(),
		Pods: countPods(pods), Disks: fileSystems(s.Disks)}
	st.Pods.Stuck, st.Troubles = findTroubles(pods, s.portConflicts(pods), st.Now)
	s.addRuntime(r, st)
	if s.Describe != nil {
		s.Describe(r.Context(), st)
	}
	s.addEvidence(r.Context(), pods, st)
	st.Ignored = s.podsWithIgnored(pods)
	if st.Cluster != nil {
		st.Evictable = evictablePods(pods)
	}
	st.Attention = api.FindAttention(st)
	return st, nil
}

// getSettings returns the agent's settings, for islet doctor.
func (s *Status) getSettings(*http.Request) (any, error) {
	if s.Settings == nil {
		return nil, response.Refuse(http.StatusNotFound, "this agent does not report its settings")
	}
	return s.Settings(), nil
}

// addRuntime adds the status of the runtime and of the pod network.
func (s *Status) addRuntime(r *http.Request, st *api.Status) {
	resp, err := s.Runtime.Status(r.Context(), &crapi.StatusRequest{Verbose: true})
	if err != nil {
		st.Runtime.Message = err.Error()
		return
	}
	info := resp.Info
	st.Runtime.OCIRuntime, st.Runtime.CgroupVersion = strings.TrimSpace(info["ociRuntime"]+" "+info["ociVersion"]), info["cgroupVersion"]
	st.Runtime.Snapshotter, st.Runtime.ShimPods = info["snapshotter"], info["shimPods"]
	for _, c := range resp.GetStatus().GetConditions() {
		switch message := c.Message; c.Type {
		case "RuntimeReady":
			st.Runtime.Ready, st.Runtime.Message = c.Status, message
		case "NetworkReady":
			st.Network.Ready, st.Network.Message = c.Status, message
		}
	}
	if list, err := s.Runtime.ListPodSandbox(r.Context(), &crapi.ListPodSandboxRequest{}); err == nil {
		st.Sandboxes = []string{}
		for _, sandbox := range list.Items {
			st.Sandboxes = append(st.Sandboxes, sandbox.Id)
		}
	}
	if v, err := s.Runtime.Version(r.Context(), &crapi.VersionRequest{}); err == nil {
		st.Runtime.Name, st.Runtime.Version = v.RuntimeName, v.RuntimeVersion
	}
}

func countPods(pods []*v1.Pod) api.PodCounts {
	n := api.PodCounts{Total: len(pods)}
	for _, p := range pods {
		switch p.Status.Phase {
		case v1.PodRunning:
			n.Running++
		case v1.PodSucceeded:
			n.Succeeded++
		case v1.PodFailed:
			n.Failed++
		default:
			n.Pending++
		}
		if podspec.IsReady(&p.Status) {
			n.Ready++
		}
	}
	return n
}

// fileSystems returns the file systems of the directories. A file system with several of the directories is returned once.
func fileSystems(dirs []string) []api.Disk {
	var out []api.Disk
	seen := map[uint64]bool{}
	for _, dir := range dirs {
		var file unix.Stat_t
		var fs unix.Statfs_t
		if unix.Stat(dir, &file) != nil || seen[uint64(file.Dev)] || unix.Statfs(dir, &fs) != nil {
			continue
		}
		seen[uint64(file.Dev)] = true
		out = append(out, diskOf(dir, &fs))
	}
	return out
}

// diskOf returns the file system of a directory. Its total size includes the blocks that are reserved for root, which are neither used nor
// free. The thresholds of evictions, the image garbage collection and /stats/summary use the same total size.
func diskOf(dir string, fs *unix.Statfs_t) api.Disk {
	block := uint64(fs.Bsize)
	return api.Disk{Path: dir, Total: fs.Blocks * block, Used: (fs.Blocks - fs.Bfree) * block, Free: fs.Bavail * block}
}
