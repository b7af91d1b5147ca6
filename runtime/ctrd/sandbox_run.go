package ctrd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/proto"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/namespace"
)

// cleanupTimeout is the timeout for undoing a failed operation.
const cleanupTimeout = 30 * time.Second

// RunPodSandbox creates the namespaces, network and files of a pod. If a sandbox with the same
// identity is ready, its ID is returned. If it is not ready, it is recreated.
func (r *Runtime) RunPodSandbox(ctx context.Context, req *api.RunPodSandboxRequest) (*api.RunPodSandboxResponse, error) {
	cfg := req.GetConfig()
	tool := cri.IsByTool(ctx)
	id, err := sandboxID(cfg, tool)
	if err != nil {
		return nil, err
	}
	id = r.freeID(id)
	if err := r.ops.LockContext(ctx, id); err != nil {
		return nil, err
	}
	defer r.ops.Unlock(id)
	h, err := r.findHandler(req.GetRuntimeHandler())
	if err != nil {
		return nil, fmt.Errorf("run sandbox %s/%s: %w", cfg.GetMetadata().GetNamespace(), cfg.GetMetadata().GetName(), err)
	}
	r.mu.Lock()
	old := r.sandboxes[id]
	r.mu.Unlock()
	if err := r.restoreRun(); err != nil {
		return nil, fmt.Errorf("run sandbox %s/%s: %w", cfg.GetMetadata().GetNamespace(), cfg.GetMetadata().GetName(), err)
	}
	if old != nil && r.isUsable(old) {
		return &api.RunPodSandboxResponse{PodSandboxId: id}, nil
	}
	if old != nil {
		if err := r.stopSandbox(ctx, old); err != nil {
			return nil, err
		}
		old.tornDown = false // it has the ID of the new sandbox, whose start may fail and leave something
	}
	packed, err := encode(cfg)
	if err != nil {
		return nil, err
	}
	s := &sandbox{
		rec: sandboxRecord{
			Format: plainFormat, ID: id, Config: packed, Handler: req.GetRuntimeHandler(), Program: h.program, Tasks: h.tasks, Tool: tool,
			CreatedAt: time.Now(), Boot: r.bootID,
		},
		config: proto.CloneOf(cfg), oci: h.oci, ready: true,
	}
	if h.tasks {
		s.rec.Format = recordFormat
		if s.tasks, err = r.newTasks(s, h.config); err != nil {
			return nil, fmt.Errorf("run sandbox %s/%s: %w", cfg.GetMetadata().GetNamespace(), cfg.GetMetadata().GetName(), err)
		}
	}
	if err := r.checkUsers(s); err != nil {
		return nil, fmt.Errorf("run sandbox %s/%s: %w", cfg.GetMetadata().GetNamespace(), cfg.GetMetadata().GetName(), err)
	}
	if err := r.runSandbox(ctx, s); err != nil {
		return nil, fmt.Errorf("run sandbox %s/%s: %w", cfg.GetMetadata().GetNamespace(), cfg.GetMetadata().GetName(), err)
	}
	r.notifySubscribers(id, id, api.ContainerEventType_CONTAINER_CREATED_EVENT) // both events, as other CRI runtimes do
	r.notifySubscribers(id, id, api.ContainerEventType_CONTAINER_STARTED_EVENT)
	return &api.RunPodSandboxResponse{PodSandboxId: id}, nil
}

// runSandbox starts s and adds it to r.sandboxes. On failure it removes everything that it created. If the init process ends when s is
// already recorded, runSandbox returns an error, and s stays in r.sandboxes and is not ready.
func (r *Runtime) runSandbox(ctx context.Context, s *sandbox) (err error) {
	s.rec.Shim, s.rec.Level = r.shims.assignSandbox(s.rec.ID, s.tasks != nil), r.selinux.AllocateLevel()
	r.mu.Lock()
	r.starting[s.rec.ID] = s // from now on, the end of its init process is noticed
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.starting, s.rec.ID)
		added := r.sandboxes[s.rec.ID] == s
		r.mu.Unlock()
		if err == nil || added {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		err = errors.Join(err, r.tearDown(ctx, s))
		r.shims.removeSandbox(s.rec.ID)
		r.selinux.Release(s.rec.Level)
	}()
	if err := namespace.Pin(filepath.Join(r.dirs.pins, s.rec.ID), namespaceConfig(s)); err != nil {
		return err
	}
	if err := r.makeSandboxFiles(s); err != nil {
		return err
	}
	if !s.hostNetwork() {
		ips, err := r.c.Network.Setup(ctx, s.rec.ID, r.netnsPath(s), proto.CloneOf(s.config))
		if err != nil {
			return fmt.Errorf("set up network: %w", err)
		}
		for _, ip := range ips {
			s.rec.IPs = append(s.rec.IPs, ip.String())
		}
	}
	if s.hasInit() {
		if err := r.startInit(ctx, s); err != nil {
			return fmt.Errorf("start the pod's init process: %w", err)
		}
	}
	if err := createRecord(r.sandboxPath(s.rec.ID), s.rec); err != nil {
		return err
	}
	s.rec.Config = nil
	if err := r.addSandbox(s); err != nil {
		r.notifySandbox(s, s.rec.ID, api.ContainerEventType_CONTAINER_STOPPED_EVENT)
		return fmt.Errorf("start the pod's init process: %w", err)
	}
	return nil
}

// addSandbox moves a sandbox from r.starting to r.sandboxes. If its init process has already ended, the sandbox is not ready, and the
// error is errInitEnded.
func (r *Runtime) addSandbox(s *sandbox) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.starting, s.rec.ID)
	if old := r.sandboxes[s.rec.ID]; old != nil {
		r.podSandboxes.drop(old.config.GetLabels(), s.rec.ID)
	}
	r.sandboxes[s.rec.ID] = s
	r.podSandboxes.put(s.config.GetLabels(), s.rec.ID, s)
	if s.initEnded {
		s.ready, s.pid = false, 0
		return errInitEnded
	}
	return nil
}

func (r *Runtime) sandboxPath(id string) string { return filepath.Join(r.dirs.sandboxes, id+".json") }

// namespaceConfig returns the configuration of the namespaces of a sandbox. A pod on the host's
// network also uses the host's UTS namespace.
func namespaceConfig(s *sandbox) namespace.Config {
	c := namespace.Config{
		Net: !s.hostNetwork(), IPC: !s.hostIPC(), UTS: !s.hostNetwork(), Users: s.userMappings(),
		Hostname: s.config.GetHostname(), Sysctls: map[string]string{},
	}
	if c.Net {
		// As in containerd, every user of a pod may use ping and bind any port, because the pod has its
		// own network namespace.
		c.Sysctls["net.ipv4.ip_unprivileged_port_start"] = "0"
		c.Sysctls["net.ipv4.ping_group_range"] = "0 2147483647"
	}
	maps.Copy(c.Sysctls, s.config.GetLinux().GetSysctls())
	return c
}
