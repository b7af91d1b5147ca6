package ctrd

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/proto"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ContainerStatus returns the status of one container. The verbose information has the same keys as
// in other CRI runtimes: sandboxID, pid, config, privileged, and runtimeSpec until the container
// has ended.
func (r *Runtime) ContainerStatus(_ context.Context, req *api.ContainerStatusRequest) (*api.ContainerStatusResponse, error) {
	c, err := r.findContainer(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	out := &api.ContainerStatusResponse{Status: r.containerStatus(c)}
	if req.GetVerbose() {
		// The file does not exist if the container has ended or the machine was restarted.
		spec, _ := os.ReadFile(filepath.Join(r.bundlePath(c.rec.ID), "config.json"))
		r.mu.Lock()
		info := map[string]any{
			"sandboxID": c.rec.Sandbox, "pid": c.pid, "bundle": r.bundlePath(c.rec.ID),
			"snapshotter": r.c.Daemon.Snapshotter(), "config": c.config,
			"privileged": c.config.GetLinux().GetSecurityContext().GetPrivileged(),
		}
		if json.Valid(spec) {
			info["runtimeSpec"] = json.RawMessage(spec)
		}
		b, err := json.Marshal(info)
		r.mu.Unlock()
		if err != nil {
			return nil, err
		}
		out.Info = map[string]string{"info": string(b)}
	}
	return out, nil
}

func (r *Runtime) containerStatus(c *container) *api.ContainerStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	cfg := proto.CloneOf(c.config)
	out := &api.ContainerStatus{
		Id: c.rec.ID, Metadata: cfg.GetMetadata(), State: c.state(),
		CreatedAt: unixNanos(c.rec.CreatedAt), StartedAt: unixNanos(c.rec.StartedAt),
		FinishedAt: unixNanos(c.rec.FinishedAt), ExitCode: c.rec.ExitCode, Reason: c.rec.Reason, Message: c.rec.Message,
		Image: cfg.GetImage(), ImageRef: cmp.Or(c.rec.Image, c.rec.ImageID), ImageId: c.rec.ImageID,
		Labels: cfg.GetLabels(), Annotations: cfg.GetAnnotations(), Mounts: cfg.GetMounts(),
		Resources: &api.ContainerResources{Linux: cfg.GetLinux().GetResources()}, StopSignal: criSignal(stopSignal(c)),
	}
	if u := c.rec.User; u != nil {
		id := &api.LinuxContainerUser{Uid: int64(u.UID), Gid: int64(u.GID)}
		for _, g := range u.AdditionalGids {
			id.SupplementalGroups = append(id.SupplementalGroups, int64(g))
		}
		out.User = &api.ContainerUser{Linux: id}
	}
	if s := r.sandboxes[c.rec.Sandbox]; s != nil && cfg.GetLogPath() != "" {
		out.LogPath = filepath.Join(s.config.GetLogDirectory(), cfg.GetLogPath())
	}
	return out
}
