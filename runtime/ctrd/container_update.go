package ctrd

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/protobuf/proto"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/ocispec"
)

// UpdateContainerResources changes the limits of a container that runs.
func (r *Runtime) UpdateContainerResources(ctx context.Context, req *api.UpdateContainerResourcesRequest) (*api.UpdateContainerResourcesResponse, error) {
	c, _, err := r.running(ctx, req.GetContainerId())
	if err != nil {
		return nil, err
	}
	r.ops.Lock(c.rec.ID)
	defer r.ops.Unlock(c.rec.ID)
	b, err := json.Marshal(ocispec.Resources(req.GetLinux()))
	if err != nil {
		return nil, err
	}
	file := filepath.Join(r.bundle(c.rec.ID), "resources.json")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		return nil, fmt.Errorf("update container %s: %w", c.rec.ID, err)
	}
	if out, err := ociCommand(ctx, r.ociOf(c.rec.Sandbox), "update", "--resources", file, c.rec.ID).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("update container %s: %w: %s", c.rec.ID, err, strings.TrimSpace(string(out)))
	}
	cfg := proto.CloneOf(c.config)
	if cfg.Linux == nil {
		cfg.Linux = &api.LinuxContainerConfig{}
	}
	if cfg.Linux.Resources == nil {
		cfg.Linux.Resources = &api.LinuxContainerResources{}
	}
	proto.Merge(cfg.Linux.Resources, req.GetLinux())
	packed, err := pack(cfg)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	c.config, c.rec.Config = cfg, packed
	r.mu.Unlock()
	return &api.UpdateContainerResourcesResponse{}, appendRecord(r.recordPath(c.rec.ID), map[string][]byte{"config": packed}, false)
}
