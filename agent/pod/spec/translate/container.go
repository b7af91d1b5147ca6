package translate

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/keys"
)

// An Attempt describes one start of a container.
type Attempt struct {
	Number uint32
	Streak uint32     // number of consecutive crashes before this attempt
	Round  uint32     // see plan.CurrentRound
	Hook   bool       // set if the agent runs a postStart hook of the container
	Target string     // ID of the container whose processes this one shares; empty if there is none
	Image  *api.Image // image to run
	Ref    string     // reference of the image in CreateContainer
	// PreviousEnv returns the environment of the last attempt, or nil if it is unknown. It is called if the
	// environment refers to an unknown object and the API server does not respond.
	PreviousEnv func() []*api.KeyValue
}

// Container returns the configuration for an attempt, without mounts and devices. It also returns the container as
// the hooks need it: each subPathExpr is replaced by a subPath.
func Container(pod *v1.Pod, ctr *v1.Container, n Node, a Attempt, objects Objects, files Files) (*api.ContainerConfig,
	*v1.Container, error) {
	env, err := buildEnvironment(pod, ctr, n, objects, files)
	if isUnreached(err) && a.PreviousEnv != nil {
		if before := a.PreviousEnv(); len(before) > 0 {
			env, err = environmentAfter(before, pod, ctr, n, files)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	sc, err := securityContext(pod, ctr, n, a.Image)
	if err != nil {
		return nil, nil, err
	}
	if o := sc.NamespaceOptions; a.Target != "" && o.Pid == api.NamespaceMode_CONTAINER {
		o.Pid, o.TargetId = api.NamespaceMode_TARGET, a.Target
	}
	ctr, err = expandMounts(ctr, env)
	if err != nil {
		return nil, nil, err
	}
	cfg := &api.ContainerConfig{
		Metadata:    &api.ContainerMetadata{Name: ctr.Name, Attempt: a.Number},
		Image:       &api.ImageSpec{Image: a.Ref, UserSpecifiedImage: ctr.Image},
		Command:     expandAll(ctr.Command, env.lookUp),
		Args:        expandAll(ctr.Args, env.lookUp),
		WorkingDir:  ctr.WorkingDir,
		Envs:        env.keyValues(),
		Labels:      podLabels(pod),
		Annotations: containerAnnotations(pod, ctr, a),
		LogPath:     LogPath(ctr.Name, a.Number),
		Stdin:       ctr.Stdin,
		StdinOnce:   ctr.StdinOnce,
		Tty:         ctr.TTY,
		Linux:       &api.LinuxContainerConfig{Resources: linuxResources(pod, ctr, n), SecurityContext: sc},
	}
	cfg.Labels[keys.ContainerName] = ctr.Name
	if l := ctr.Lifecycle; l != nil && l.StopSignal != nil {
		s, ok := api.Signal_value["SIGNAL_"+strings.NewReplacer("+", "PLUS", "-", "MINUS").Replace(string(*l.StopSignal))]
		if !ok {
			return nil, nil, fmt.Errorf("stop signal %q is not known", *l.StopSignal)
		}
		cfg.StopSignal = api.Signal(s)
	}
	return cfg, ctr, nil
}

// LogPath returns the path of an attempt's log below the pod's log directory.
func LogPath(container string, attempt uint32) string {
	return path.Join(container, strconv.FormatUint(uint64(attempt), 10)+".log")
}

func containerAnnotations(pod *v1.Pod, ctr *v1.Container, a Attempt) map[string]string {
	out := map[string]string{
		keys.ContainerHash: plan.Hash(ctr),
		keys.MemoryRequest: strconv.FormatInt(memoryRequest(pod, ctr), 10),
		keys.RestartCount:  strconv.FormatUint(uint64(a.Number), 10),
		keys.MessagePath:   ctr.TerminationMessagePath,
		keys.MessagePolicy: string(ctr.TerminationMessagePolicy),
	}
	if a.Streak > 0 {
		out[keys.Streak] = strconv.FormatUint(uint64(a.Streak), 10)
	}
	if a.Round > 0 {
		out[keys.Round] = strconv.FormatUint(uint64(a.Round), 10)
	}
	if anew := restartResources(pod, ctr); anew != "" {
		out[keys.RestartResources] = anew
	}
	if l := ctr.Lifecycle; a.Hook && l != nil && l.PostStart != nil {
		out[keys.PostStart] = "true"
	}
	if runAsNonRoot(pod, ctr) {
		out[keys.RunAsNonRoot] = "true"
	}
	if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
		out[keys.GracePeriod] = strconv.FormatInt(*g, 10)
	}
	return out
}

// expandMounts replaces subPathExpr by subPath. All variables in a subPathExpr must be set.
func expandMounts(ctr *v1.Container, env *environ) (*v1.Container, error) {
	out := *ctr
	out.VolumeMounts = nil
	for _, m := range ctr.VolumeMounts {
		if m.SubPathExpr != "" {
			var unknown error
			m.SubPath = Expand(m.SubPathExpr, func(name string) (string, bool) {
				v, ok := env.lookUp(name)
				if !ok {
					unknown = errors.New("subPathExpr of volume mount " + m.Name + " names the variable " + name + ", which is not set")
				}
				return v, ok
			})
			if unknown != nil {
				return nil, unknown
			}
			m.SubPathExpr = ""
		}
		out.VolumeMounts = append(out.VolumeMounts, m)
	}
	return &out, nil
}
