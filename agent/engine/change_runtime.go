package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/bootid"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/remote"
)

// metaKey is the key of the record in the store.
const metaKey = "containerRuntime"

// A record stores the runtime in which this node's pods run.
type record struct {
	Endpoint string `json:"endpoint"`         // empty for the runtime in this process
	Boot     string `json:"boot"`             // the boot ID when the runtime was last in use
	Driver   string `json:"driver,omitempty"` // the cgroup driver that the runtime last reported
	Left     string `json:"left,omitempty"`   // describes the leftovers in the previous runtime
	exists   bool   // the node has run pods before
}

// loadRecord reads the record. Older versions of islet stored no record. Without a record, the node has run pods before
// if the runtime in this process has a state directory with files.
func loadRecord(ctx context.Context, a Config) (r record, err error) {
	text, known, err := a.Store.Meta(ctx, metaKey)
	if err != nil {
		return r, err
	}
	if !known {
		made, err := os.ReadDir(filepath.Join(a.Dirs.State, recordsDir))
		r.exists = err == nil && len(made) > 0
		r.Boot = bootid.Read()
		return r, nil
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return r, fmt.Errorf("read the stored container runtime of the node: %w", err)
	}
	r.exists = true
	return r, nil
}

// save stores the record.
func (r *record) save(ctx context.Context, a Config) error {
	r.Boot = bootid.Read()
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return a.Store.SetMeta(ctx, metaKey, string(text))
}

// answerTimeout is the time for which a change of the runtime waits until a runtime answers.
const answerTimeout = 10 * time.Second

// moveRuntime returns the runtime in which the node's pods run from now on. Pods never run in two runtimes. The node changes
// to the new runtime only if the new one answers, and only after the pods in the old one were stopped with their
// grace period. If the node must keep the old runtime, the second result is the reason.
//
//	new runtime answers?  no -> keep the old one
//	old runtime answers?  no -> booted since: nothing runs there; else: fail to start
//	end the node's pods there --> report what remains --> new runtime
func moveRuntime(ctx context.Context, a Config, used record) (now record, stays error, err error) {
	unchanged := remote.Socket(used.Endpoint) == remote.Socket(a.RuntimeEndpoint)
	if !used.exists || unchanged {
		return record{Endpoint: a.RuntimeEndpoint, Driver: used.Driver, Left: used.Left}, nil, nil
	}
	if a.RuntimeEndpoint != "" {
		next, err := openRemote(ctx, a, a.RuntimeEndpoint, nil)
		if err != nil {
			return now, nil, err
		}
		defer next.Close()
		if !waitAnswer(ctx, next) {
			stays = fmt.Errorf("the configured container runtime at %s does not answer, so this node's pods stay in %s: "+
				"start it and then restart islet, or remove containerRuntimeEndpoint", a.RuntimeEndpoint, runtimeTitle(used.Endpoint))
			a.Log.Error(stays.Error())
			return used, stays, nil
		}
	}
	left, err := endOldPods(ctx, a, used)
	if err != nil {
		return now, nil, err
	}
	a.reportMove(used.Endpoint, left)
	return record{Endpoint: a.RuntimeEndpoint, Left: left}, nil, nil
}

// reportMove logs the change of the runtime and the leftovers in the old one, and records an event about it.
func (a Config) reportMove(before, left string) {
	a.Log.Warn("the node has changed to another container runtime",
		"before", runtimeTitle(before), "now", runtimeTitle(a.RuntimeEndpoint), "left", left)
	a.RecordEvent(false, "ContainerRuntimeChanged", fmt.Sprintf("Pods run in %s from now on. %s", runtimeTitle(a.RuntimeEndpoint), left))
}

// runtimeTitle returns the runtime's name for messages.
func runtimeTitle(endpoint string) string {
	if endpoint == "" {
		return "islet's own runtime"
	}
	return "the runtime at " + endpoint
}

// waitAnswer reports whether the runtime answers within answerTimeout.
func waitAnswer(ctx context.Context, c *Containers) bool {
	ctx, stop := context.WithTimeout(ctx, answerTimeout)
	defer stop()
	d, isRemote := c.backend.(*remoteBackend)
	for isRemote && !d.CheckStatus(ctx) && ctx.Err() == nil {
		d.AwaitChange(ctx)
	}
	return ctx.Err() == nil
}

// endOldPods stops and removes the node's pods in the old runtime. It returns a description of the leftovers there.
func endOldPods(ctx context.Context, a Config, used record) (left string, err error) {
	old, err := open(ctx, a, used.Endpoint)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, old.Close()) }()
	if !waitAnswer(ctx, old) {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if now := bootid.Read(); now != "" && used.Boot != now { // the reboot has ended the containers
			return fmt.Sprintf("The runtime at %s does not answer. Its images and the remains of this node's pods stay there.",
				used.Endpoint), nil
		}
		return "", fmt.Errorf("this node's pods may still run in the runtime at %s, which does not answer: start it, "+
			"so that islet can end the pods there before it starts them in %s; or reboot the machine",
			used.Endpoint, runtimeTitle(a.RuntimeEndpoint))
	}
	if err := a.OnLeave(ctx, old.Runtime); err != nil {
		return "", fmt.Errorf("store the state of the pods in %s: %w", runtimeTitle(used.Endpoint), err)
	}
	others, err := endPods(ctx, a, old)
	if err != nil {
		return "", fmt.Errorf("end the node's pods in %s: %w", runtimeTitle(used.Endpoint), err)
	}
	if err := old.Network.Clean(ctx); err != nil {
		a.Log.Warn("the built-in network could not be removed completely", "error", err)
	}
	return describeLeftovers(ctx, a, old, others), nil
}

// defaultGrace is the grace period of a pod that sets none.
const defaultGrace = 30 * time.Second

// endPods stops the node's pods in parallel and removes them. It returns the number of pods
// that belong to other programs.
func endPods(ctx context.Context, a Config, c *Containers) (others int, err error) {
	list, err := c.Runtime.ListPodSandbox(ctx, &api.ListPodSandboxRequest{})
	if err != nil {
		return 0, err
	}
	own := c.OwnSandboxes(list.Items)
	g, ctx := errgroup.WithContext(ctx)
	for _, s := range own {
		a.Log.Info("ending a pod, to start it in the new container runtime",
			"pod", s.Metadata.GetNamespace()+"/"+s.Metadata.GetName(), "uid", s.Labels[keys.PodUID])
		g.Go(func() error { return endPod(ctx, c.Runtime, s) })
	}
	return len(list.Items) - len(own), g.Wait()
}

// endPod stops the containers of a pod and removes the pod's sandbox. The containers get the pod's grace period, but
// their preStop hooks do not run.
func endPod(ctx context.Context, rt cri.Runtime, s *api.PodSandbox) error {
	list, err := rt.ListContainers(ctx, &api.ListContainersRequest{Filter: &api.ContainerFilter{PodSandboxId: s.Id,
		State: &api.ContainerStateValue{State: api.ContainerState_CONTAINER_RUNNING}}})
	if err != nil {
		return err
	}
	g, stopping := errgroup.WithContext(ctx)
	for _, c := range list.Containers {
		g.Go(func() error {
			_, err := rt.StopContainer(stopping, &api.StopContainerRequest{ContainerId: c.Id, Timeout: int64(graceOf(s) / time.Second)})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("pod %s/%s: %w", s.Metadata.GetNamespace(), s.Metadata.GetName(), err)
	}
	for began := time.Now(); ; {
		_, err = rt.StopPodSandbox(ctx, &api.StopPodSandboxRequest{PodSandboxId: s.Id})
		if err == nil {
			_, err = rt.RemovePodSandbox(ctx, &api.RemovePodSandboxRequest{PodSandboxId: s.Id})
		}
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || time.Since(began) > removeTimeout {
			return fmt.Errorf("pod %s/%s: %w", s.Metadata.GetNamespace(), s.Metadata.GetName(), err)
		}
		select {
		case <-time.After(removeRetry):
		case <-ctx.Done():
		}
	}
}

// A runtime may refuse to remove a container that has just ended. In containerd the container counts as running until its
// exit event has been processed.
const (
	removeTimeout = 20 * time.Second // the limit for all attempts together
	removeRetry   = 250 * time.Millisecond
)

// graceOf returns the termination grace period of a sandbox's pod. The minimum is two seconds, as for every stop of a container.
func graceOf(s *api.PodSandbox) time.Duration {
	var pod v1.Pod
	if json.Unmarshal([]byte(s.Annotations[keys.Manifest]), &pod) != nil || pod.Spec.TerminationGracePeriodSeconds == nil {
		return defaultGrace
	}
	return time.Duration(max(*pod.Spec.TerminationGracePeriodSeconds, 2)) * time.Second
}

// describeLeftovers describes the leftovers in the previous runtime, with the command that removes them.
func describeLeftovers(ctx context.Context, a Config, c *Containers, others int) string {
	images := 0
	if list, err := c.Images.ListImages(ctx, &api.ListImagesRequest{}); err == nil {
		images = len(list.Images)
	}
	if c.Endpoint == "" {
		return fmt.Sprintf("Islet's own runtime keeps %d images; to free their space: rm -r %s %s",
			images, filepath.Join(a.Dirs.State, storageDir), filepath.Join(a.Dirs.State, recordsDir))
	}
	text := fmt.Sprintf("The runtime at %s keeps %d images; to free their space: crictl --runtime-endpoint %[1]s rmi --prune",
		c.Endpoint, images)
	if others > 0 {
		text += fmt.Sprintf(". It also runs %d pods of other programs, which islet does not touch", others)
	}
	return text
}
