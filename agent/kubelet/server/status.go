package server

import (
	"net/http"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	crapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/agent/kubelet/server/response"
	"github.com/islet-edge/islet/internal/api"
)

// getStatus returns the node's status.
func (s *Server) getStatus(r *http.Request) (any, error) {
	pods := s.Pods.List()
	st := &api.Status{Version: s.Version, Node: s.NodeName, Started: s.started, Now: time.Now(),
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
func (s *Server) getSettings(*http.Request) (any, error) {
	if s.Settings == nil {
		return nil, response.Refuse(http.StatusNotFound, "this agent does not report its settings")
	}
	return s.Settings(), nil
}

// addRuntime adds the status of the runtime and of the pod network.
func (s *Server) addRuntime(r *http.Request, st *api.Status) {
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
		for _, c := range p.Status.Conditions {
			if c.Type == v1.PodReady && c.Status == v1.ConditionTrue {
				n.Ready++
			}
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
		block := uint64(fs.Bsize)
		out = append(out, api.Disk{Path: dir, Total: (fs.Blocks - fs.Bfree + fs.Bavail) * block, Free: fs.Bavail * block})
	}
	return out
}
