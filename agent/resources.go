package agent

import (
	"context"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/engine"
	"github.com/islet-edge/islet/agent/host/process"
	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/agent/resource"
	"github.com/islet-edge/islet/agent/resource/eviction"
	"github.com/islet-edge/islet/agent/resource/garbage"
	"github.com/islet-edge/islet/agent/resource/usage"
	"github.com/islet-edge/islet/edge/link"
	"github.com/islet-edge/islet/runtime/cgroup"
)

// newUpkeep makes what keeps the disk from filling up. An eviction first asks it to reclaim.
func (a *agent) newUpkeep() *resource.Upkeep {
	return resource.New(resource.Config{
		Config: a.cfg, Images: a.rt.Images, Shims: engine.Programs(a.cfg.Dirs.State), Cgroup: cgroup.Path(a.rt.CgroupDriver, a.cfg.Kubelet.CgroupRoot),
		Kernel: filepath.Join(a.cfg.Dirs.Run, process.OOM), Store: a.store, OOM: func(ago time.Duration) { a.eviction.OutOfMemory(ago) }, Garbage: garbage.Config{
			Runtime: a.rt.Runtime, Known: a.rt.Known,
			Pods: a.pods.List, Events: a.events, Now: a.link.Now, Log: a.log, Offline: func() bool { return a.cluster == nil || a.link.State().Phase != link.Up },
			Dead: garbage.Dead{View: a.observer, Sweep: a.sweep, Remove: func(ctx context.Context, uid types.UID, c plan.Container) error {
				return a.executor.Do(ctx, plan.Input{UID: uid, Seen: a.observer.Pod(uid)}, plan.Action{Op: plan.RemoveContainer, Container: c.Name, ID: c.ID})
			}},
		}})
}

// openEviction makes what measures pods, and what ends those that take too much.
func (a *agent) openEviction() (err error) {
	pods := cgroup.Path(a.rt.CgroupDriver, a.cfg.Kubelet.CgroupRoot)
	a.usage = usage.OfMachine(usage.Config{
		NodeName: a.cfg.Node.Name, Runtime: a.rt.Runtime, Images: a.rt.Images, Pods: a.pods.Look, Volumes: a.claims.Stats, Root: a.cfg.Dirs.Root, LogsDir: a.cfg.Kubelet.PodLogsDir, Started: time.Now(),
	}, a.rt.Cgroups, pods, a.cfg.Kubelet.SystemCgroups, a.cfg.Kubelet.VolumeStatsAggPeriod.Duration)
	a.eviction, err = eviction.OfMachine(eviction.Config{
		Kubelet: &a.cfg.Kubelet, Hold: a.started.OnTrial(), Figures: a.usage, Pods: a.pods, Reclaim: a.upkeep, Events: a.events, Counts: a.figures, Changed: a.reportNode, Log: a.log,
	}, eviction.Machine{Cgroups: a.rt.Cgroups.Reader, Pods: pods, Root: a.cfg.Dirs.Root, Images: a.rt.Images})
	a.machine.SetPressures(a.eviction.Conditions)
	return err
}
