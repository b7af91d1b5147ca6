package ctrd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/pattern"
	"github.com/islet-edge/islet/metrics/cgroup"
	"github.com/islet-edge/islet/runtime/ocispec"
)

// UpdateContainerResources changes the limits of a container that has not ended. If a field of the
// request is zero, its limit stays unchanged. If the OCI runtime rejects the new limits, the old
// limits are restored. A memory limit below the container's usage is an error, because on cgroup v2
// the kernel would kill the container. A kubelet makes the same check before it resizes a pod
// (KEP-1287).
func (r *Runtime) UpdateContainerResources(
	ctx context.Context, req *api.UpdateContainerResourcesRequest,
) (*api.UpdateContainerResourcesResponse, error) {
	c, err := r.findContainer(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	if err := r.checkContainerOwner(ctx, c, "update container"); err != nil {
		return nil, err
	}
	if err := r.ops.LockContext(ctx, c.rec.ID); err != nil {
		return nil, err
	}
	defer r.ops.Unlock(c.rec.ID)
	if err := r.updateContainer(ctx, c, req.GetLinux()); err != nil {
		return nil, fmt.Errorf("update container %s: %w", c.rec.ID, err)
	}
	if s, err := r.findSandbox(c.rec.Sandbox); err == nil {
		r.cgroups.Forget(r.cgroupDir(s, c.rec.ID))
	}
	return &api.UpdateContainerResourcesResponse{}, nil
}

// updateContainer updates the limits and the record. The caller holds the container's lock.
func (r *Runtime) updateContainer(ctx context.Context, c *container, change *api.LinuxContainerResources) error {
	r.mu.Lock()
	state, old := c.state(), c.config.GetLinux().GetResources()
	r.mu.Unlock()
	if state == api.ContainerState_CONTAINER_EXITED {
		return fmt.Errorf("it has ended: %w", errdefs.ErrFailedPrecondition)
	}
	if err := r.checkResources(change); err != nil {
		return err
	}
	cfg := proto.CloneOf(c.config)
	if cfg.Linux == nil {
		cfg.Linux = &api.LinuxContainerConfig{}
	}
	cfg.Linux.Resources = mergeResources(old, change)
	packed, err := encode(cfg)
	if err != nil {
		return err
	}
	if state == api.ContainerState_CONTAINER_RUNNING {
		if err := r.applyResources(ctx, c, old, cfg.Linux.Resources); err != nil {
			return err
		}
	}
	if err := r.updateSpec(c.rec.ID, cfg.Linux.Resources, change); err != nil {
		return err
	}
	if proto.Equal(c.config, cfg) && !c.unrecorded {
		return nil
	}
	r.mu.Lock()
	c.config = cfg
	r.mu.Unlock()
	err = r.changeRecord(r.recordPath(c.rec.ID), map[string][]byte{"config": packed})
	c.unrecorded = err != nil
	return err
}

var pageSize = pattern.New(`^[0-9]+[KMG]B$`)

// checkResources validates a request before anything is changed. It rejects values that no kernel
// or OCI runtime accepts.
func (r *Runtime) checkResources(l *api.LinuxContainerResources) error {
	switch {
	case l.GetCpuPeriod() < 0, l.GetCpuShares() < 0, l.GetCpuQuota() < -1,
		l.GetMemoryLimitInBytes() < -1, l.GetMemorySwapLimitInBytes() < -1:
		return fmt.Errorf("a limit is negative: %w", errdefs.ErrInvalidArgument)
	case len(l.GetUnified()) > 0 && !r.host.CgroupV2:
		return fmt.Errorf("unified resources need cgroup v2, which this host does not use: %w", errdefs.ErrInvalidArgument)
	}
	for _, h := range l.GetHugepageLimits() {
		if !pageSize().MatchString(h.GetPageSize()) {
			return fmt.Errorf("%q is not a huge page size: %w", h.GetPageSize(), errdefs.ErrInvalidArgument)
		}
	}
	for key := range l.GetUnified() {
		if strings.Contains(key, "/") || !strings.Contains(key, ".") {
			return fmt.Errorf("%q is not a file of cgroup v2: %w", key, errdefs.ErrInvalidArgument)
		}
	}
	return nil
}

// mergeResources returns a copy of the old resources. The fields that are set in the requested change replace the old fields. The CRI's
// swap limit is the sum of memory and swap. If the requested change contains no swap limit, the old swap limit is raised to at least
// the new memory limit.
func mergeResources(old, change *api.LinuxContainerResources) *api.LinuxContainerResources {
	out := &api.LinuxContainerResources{}
	if old != nil {
		out = proto.CloneOf(old)
	}
	pages := change.GetHugepageLimits()
	kept := out.HugepageLimits[:0]
	for _, h := range out.HugepageLimits {
		named := false
		for _, p := range pages {
			named = named || p.GetPageSize() == h.GetPageSize()
		}
		if !named {
			kept = append(kept, h)
		}
	}
	out.HugepageLimits = kept
	proto.Merge(out, change)
	if limit, swap := out.MemoryLimitInBytes, out.MemorySwapLimitInBytes; change.GetMemorySwapLimitInBytes() == 0 && swap > 0 {
		if limit < 0 {
			out.MemorySwapLimitInBytes = -1
		} else {
			out.MemorySwapLimitInBytes = max(limit, swap)
		}
	}
	return out
}

// applyResources sets the limits of a running container.
func (r *Runtime) applyResources(ctx context.Context, c *container, old, next *api.LinuxContainerResources) error {
	r.mu.Lock()
	s := r.sandboxes[c.rec.Sandbox]
	r.mu.Unlock()
	if s == nil {
		return fmt.Errorf("its sandbox is gone: %w", errdefs.ErrFailedPrecondition)
	}
	cgroupPath := r.cgroupDir(s, c.rec.ID)
	if limit := next.GetMemoryLimitInBytes(); limit > 0 && limit != old.GetMemoryLimitInBytes() {
		f, err := r.readFigures(ctx, s, c)
		if err != nil {
			return err
		}
		if err := checkUsage(limit, f); err != nil {
			return err
		}
	}
	if err := r.ociUpdate(ctx, s, c.rec.ID, next); err != nil {
		back, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		return errors.Join(err, r.ociUpdate(back, s, c.rec.ID, old))
	}
	if err := r.setHugepages(cgroupPath, old, next); err != nil {
		return err
	}
	if score := next.GetOomScoreAdj(); score != old.GetOomScoreAdj() {
		return r.setOOMScore(cgroupPath, score)
	}
	return nil
}

// checkUsage returns an error if the new limit is below the container's working set. The working set excludes page cache
// that the kernel can drop at once when the limit is set.
func checkUsage(limit int64, f cgroup.Figures) error {
	if f.WorkingSet >= uint64(limit) {
		return fmt.Errorf("attempting to set the memory limit (%d) below current usage (%d): %w",
			limit, f.WorkingSet, errdefs.ErrFailedPrecondition)
	}
	return nil
}

func (r *Runtime) ociUpdate(ctx context.Context, s *sandbox, id string, l *api.LinuxContainerResources) error {
	res := ocispec.Resources(l, r.host)
	if res == nil {
		return nil
	}
	if s.tasks != nil {
		return s.tasks.Update(ctx, id, res)
	}
	b, err := json.Marshal(res)
	if err != nil {
		return err
	}
	file := filepath.Join(r.bundlePath(id), "resources.json")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		return err
	}
	if out, err := ociCommand(ctx, s.oci, "update", "--resources", file, id).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// setHugepages sets the huge page limits. The update command of some OCI runtimes ignores them.
func (r *Runtime) setHugepages(cgroupPath string, old, next *api.LinuxContainerResources) error {
	previous := map[string]uint64{}
	for _, h := range old.GetHugepageLimits() {
		previous[h.GetPageSize()] = h.GetLimit()
	}
	for _, h := range next.GetHugepageLimits() {
		if was, ok := previous[h.GetPageSize()]; ok && was == h.GetLimit() {
			continue
		}
		path := filepath.Join(cgroup.Mountpoint, "hugetlb", cgroupPath, "hugetlb."+h.GetPageSize()+".limit_in_bytes")
		if r.host.CgroupV2 {
			path = filepath.Join(cgroup.Mountpoint, cgroupPath, "hugetlb."+h.GetPageSize()+".max")
		}
		if err := os.WriteFile(path, []byte(strconv.FormatUint(h.GetLimit(), 10)), 0); err != nil {
			return fmt.Errorf("limit huge pages of %s: %w", h.GetPageSize(), err)
		}
	}
	return nil
}

// setOOMScore changes the oom_score_adj of all processes of a container. New child processes
// inherit it. Commands that runc executes later still get the score with which the container was
// started.
func (r *Runtime) setOOMScore(cgroupPath string, score int64) error {
	pids, err := r.cgroups.Processes(cgroupPath)
	if err != nil {
		return err
	}
	value := strconv.Itoa(max(int(score), r.host.MinOOMScore))
	for _, pid := range pids {
		err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(value), 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // otherwise the process has just ended
			return fmt.Errorf("set oom_score_adj: %w", err)
		}
	}
	return nil
}

// updateSpec writes new resources to the container's config.json. A container that is not yet
// running will be started with this file, and exec reads the OOM score from it.
func (r *Runtime) updateSpec(id string, l, change *api.LinuxContainerResources) error {
	path := filepath.Join(r.bundlePath(id), "config.json")
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var spec specs.Spec
	if err := json.Unmarshal(b, &spec); err != nil {
		return err
	}
	res := ocispec.Resources(l, r.host)
	res.Devices = spec.Linux.Resources.Devices
	spec.Linux.Resources = res
	if change.GetOomScoreAdj() != 0 {
		score := max(int(l.GetOomScoreAdj()), r.host.MinOOMScore)
		spec.Process.OOMScoreAdj = &score
	}
	if b, err = json.Marshal(&spec); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
