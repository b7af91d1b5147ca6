package page

import (
	"cmp"
	"time"

	v1 "k8s.io/api/core/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/internal/sorting"
)

// A pod contains the facts about a pod that the page shows. The page does not show environment
// variables, arguments, volumes and Secrets.
type pod struct {
	Namespace  string      `json:"namespace"`
	Name       string      `json:"name"`
	UID        string      `json:"uid"`
	State      string      `json:"state"`
	Why        string      `json:"why,omitempty"` // message of the pod's trouble
	Health     health      `json:"health"`
	Ready      bool        `json:"ready"`
	Restarts   int32       `json:"restarts"`
	NanoCores  *uint64     `json:"nanoCores"`
	Memory     *uint64     `json:"memory"`
	Containers []container `json:"containers"` // the main containers come first
	Addresses  []string    `json:"addresses"`
	Ports      []hostPort  `json:"ports"`
	Created    time.Time   `json:"created"`
	LastExit   *exit       `json:"lastExit"`
	Source     string      `json:"source"` // file, http, local, api
}

// A health is the state of a pod by which the list is sorted. Pods that need a person's attention come first.
type health int

// These are the values of health.
const (
	failing health = iota
	waiting
	healthy
	finished
)

type container struct {
	Name  string `json:"name"`
	Image string `json:"image"`
	State string `json:"state"` // Running, a reason, or empty if the container has not started
	Ready bool   `json:"ready"`
	Exit  *exit  `json:"exit"` // the last end of the container
}

// An exit is the end of a container.
type exit struct {
	Container string    `json:"container"`
	Code      int32     `json:"code"`
	Reason    string    `json:"reason"`
	At        time.Time `json:"at"`
}

// A hostPort is a port of the node that belongs to a pod.
type hostPort struct {
	Port      int32  `json:"port"`
	HostIP    string `json:"hostIP,omitempty"`
	Protocol  string `json:"protocol"`
	Name      string `json:"name,omitempty"`
	Container int32  `json:"container"`
}

// maxParts is the maximum number of containers, of addresses and of host ports of a pod that the page lists.
const maxParts = 40

func (d *document) pods(all []v1.Pod, measured []stats.PodStats, troubles []api.Trouble) {
	used := map[string]*stats.PodStats{}
	for i := range measured {
		used[measured[i].PodRef.UID] = &measured[i]
	}
	trouble := map[[2]string]*api.Trouble{}
	for i := range troubles {
		trouble[[2]string{troubles[i].Namespace, troubles[i].Name}] = &troubles[i]
	}
	rows := make([]pod, 0, len(all))
	for i := range all {
		one := podOf(&all[i])
		if t := trouble[[2]string{one.Namespace, one.Name}]; t != nil {
			one.State, one.Why, one.Health = t.Reason, t.Message, failing
		}
		if u := used[one.UID]; u != nil {
			if u.CPU != nil {
				one.NanoCores = u.CPU.UsageNanoCores
			}
			if u.Memory != nil {
				one.Memory = u.Memory.WorkingSetBytes
			}
		}
		rows = append(rows, one)
	}
	sorting.StableBy(rows, func(a, b pod) int {
		return cmp.Or(cmp.Compare(a.Health, b.Health), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	d.More = max(0, len(rows)-maxPods)
	d.Pods = append(d.Pods, rows[:min(len(rows), maxPods)]...)
}

func podOf(p *v1.Pod) pod {
	out := pod{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), State: string(p.Status.Phase), Containers: []container{},
		Addresses: []string{}, Ports: []hostPort{}, Created: p.CreationTimestamp.Time,
		Source: cmp.Or(p.Annotations[keys.ConfigSource], keys.SourceAPI), Ready: podspec.IsReady(&p.Status)}
	if out.Created.IsZero() && p.Status.StartTime != nil {
		out.Created = p.Status.StartTime.Time
	}
	if p.Status.Reason != "" {
		out.State = p.Status.Reason
	}
	status := map[string]*v1.ContainerStatus{}
	for s := range podspec.Statuses(&p.Status) {
		status[s.Name] = s
		out.Restarts += s.RestartCount
	}
	for s := range podspec.PermanentStatuses(&p.Status) {
		if w := s.State.Waiting; w != nil && w.Reason != "" && w.Reason != "PodInitializing" && w.Reason != "ContainerCreating" {
			out.State = w.Reason
		}
	}
	for _, main := range []bool{true, false} {
		for kind, c := range podspec.Containers(&p.Spec) {
			if (kind == podspec.Main) == main && len(out.Containers) < maxParts {
				out.addContainer(c, status[c.Name], kind)
			}
		}
	}
	out.addAddresses(p)
	if p.DeletionTimestamp != nil {
		out.State = "Terminating"
	}
	out.Health = out.judge()
	return out
}

// addContainer adds a container and its host ports. It omits the end of an init container whose exit code is 0.
func (p *pod) addContainer(c *v1.Container, s *v1.ContainerStatus, kind podspec.Kind) {
	one := container{Name: c.Name, Image: c.Image}
	if s != nil {
		one.Ready = s.Ready
		switch {
		case s.State.Running != nil:
			one.State = "Running"
		case s.State.Waiting != nil:
			one.State = s.State.Waiting.Reason
		case s.State.Terminated != nil:
			one.State = s.State.Terminated.Reason
		}
		one.Exit = exitOf(c.Name, s.LastTerminationState.Terminated)
		if now := s.State.Terminated; now != nil && (kind == podspec.Main || now.ExitCode != 0) {
			one.Exit = exitOf(c.Name, now)
		}
	}
	if e := one.Exit; e != nil && (p.LastExit == nil || e.At.After(p.LastExit.At)) {
		p.LastExit = e
	}
	p.Containers = append(p.Containers, one)
}

func exitOf(name string, t *v1.ContainerStateTerminated) *exit {
	if t == nil {
		return nil
	}
	return &exit{Container: name, Code: t.ExitCode, Reason: t.Reason, At: t.FinishedAt.Time}
}

// addAddresses adds the pod's addresses and host ports. A pod in the host's network has the addresses of the node. addAddresses
// omits these addresses, and treats every port of such a pod as a host port.
func (p *pod) addAddresses(of *v1.Pod) {
	for _, a := range of.Status.PodIPs {
		if !of.Spec.HostNetwork && len(p.Addresses) < maxParts {
			p.Addresses = append(p.Addresses, a.IP)
		}
	}
	for kind, c := range podspec.Containers(&of.Spec) {
		for _, port := range c.Ports {
			host := port.HostPort
			if of.Spec.HostNetwork {
				host = port.ContainerPort
			}
			if host > 0 && kind != podspec.Init && len(p.Ports) < maxParts {
				p.Ports = append(p.Ports, hostPort{Port: host, HostIP: port.HostIP, Protocol: string(cmp.Or(port.Protocol, v1.ProtocolTCP)),
					Name: port.Name, Container: port.ContainerPort})
			}
		}
	}
}

// judge returns the health according to the pod's state alone. If the node's status contains a
// trouble of the pod, the trouble overrides this health.
func (p *pod) judge() health {
	switch {
	case p.Ready:
		return healthy
	case p.State == string(v1.PodSucceeded):
		return finished
	case p.State == string(v1.PodPending) || p.State == string(v1.PodRunning) || p.State == "Terminating":
		return waiting
	}
	return failing
}
