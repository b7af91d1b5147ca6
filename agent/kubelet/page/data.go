package page

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"sort"
	"time"

	v1 "k8s.io/api/core/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/sorting"
)

// document is the data of the page.
type document struct {
	Node      string      `json:"node"`
	Version   string      `json:"version"`
	Now       time.Time   `json:"now"`
	Started   time.Time   `json:"started"`
	Link      string      `json:"link"` // state of the link to the control plane; empty if there is none
	Attention []string    `json:"attention"`
	Counts    string      `json:"counts"`
	Pods      []pod       `json:"pods"`
	More      int         `json:"more"` // number of pods that are not listed
	Memory    uint64      `json:"memory"`
	Cores     int         `json:"cores"`
	Disk      *api.Disk   `json:"disk"`
	Interval  int         `json:"interval"` // seconds
	History   []Reading   `json:"history"`
	Events    []api.Event `json:"events"` // newest first
}

type pod struct {
	Namespace  string   `json:"namespace"`
	Name       string   `json:"name"`
	State      string   `json:"state"`
	Ready      bool     `json:"ready"`
	Restarts   int32    `json:"restarts"`
	NanoCores  *uint64  `json:"nanoCores"`
	Memory     *uint64  `json:"memory"`
	Containers []string `json:"containers"`
}

// minReading is the minimum interval for which rates are shown.
const minReading = 5 * time.Second

// Maximum lengths of the lists.
const (
	maxPods      = 300
	maxEvents    = 50
	maxAttention = 30
)

func (p *Page) get(ctx context.Context, path string, into any) error {
	b, err := p.callAPI(ctx, path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// collectDocument collects the data of the page. Values that cannot be measured are left out. If the node's status or its pods
// are not available, the result is an error.
func (p *Page) collectDocument(ctx context.Context) (*document, error) {
	var st api.Status
	if err := p.get(ctx, api.PathStatus, &st); err != nil {
		return nil, err
	}
	d := &document{Node: st.Node, Version: st.Version, Now: st.Now, Started: st.Started,
		Attention: listProblems(&st), Interval: int(Interval / time.Second), History: p.history.list(),
		Counts: fmt.Sprintf("%d of %d ready", st.Pods.Ready, st.Pods.Total), Cores: runtime.NumCPU(), Pods: []pod{}, Events: []api.Event{}}
	if n := len(d.History); n > 0 && time.Since(d.History[n-1].At) >= minReading { // add a current reading
		if now, err := p.c.Machine.Read(ctx); err == nil {
			h := history{last: d.History}
			h.add(now)
			d.History = h.last
		}
	}
	if st.Cluster != nil {
		d.Link = st.Cluster.Link
	}
	if len(st.Disks) > 0 {
		d.Disk = &st.Disks[0]
	}
	var pods v1.PodList
	if err := p.get(ctx, "/pods", &pods); err != nil {
		return nil, err
	}
	var sum stats.Summary
	if p.get(ctx, api.PathStats+"?only_cpu_and_memory=true", &sum) == nil {
		d.machine(&sum)
	}
	d.pods(pods.Items, sum.Pods)
	var events []api.Event
	if p.get(ctx, api.PathEvents, &events) == nil {
		sorting.StableBy(events, func(a, b api.Event) int { return b.Last.Compare(a.Last) })
		d.Events = append(d.Events, events[:min(len(events), maxEvents)]...)
	}
	return d, nil
}

func (d *document) machine(sum *stats.Summary) {
	if m := sum.Node.Memory; m != nil && m.AvailableBytes != nil && m.WorkingSetBytes != nil {
		d.Memory = *m.AvailableBytes + *m.WorkingSetBytes
	}
}

func (d *document) pods(all []v1.Pod, measured []stats.PodStats) {
	used := map[string]*stats.PodStats{}
	for i := range measured {
		used[measured[i].PodRef.UID] = &measured[i]
	}
	// slices.SortFunc would add more than 20 KB to the binary for this type of element.
	sort.Slice(all, func(i, j int) bool {
		return all[i].Namespace+"/"+all[i].Name < all[j].Namespace+"/"+all[j].Name
	})
	d.More = max(0, len(all)-maxPods)
	for i := range all[:min(len(all), maxPods)] {
		one := podOf(&all[i])
		if u := used[string(all[i].UID)]; u != nil {
			if u.CPU != nil {
				one.NanoCores = u.CPU.UsageNanoCores
			}
			if u.Memory != nil {
				one.Memory = u.Memory.WorkingSetBytes
			}
		}
		d.Pods = append(d.Pods, one)
	}
}

func podOf(p *v1.Pod) pod {
	out := pod{Namespace: p.Namespace, Name: p.Name, State: string(p.Status.Phase), Containers: []string{}}
	if p.Status.Reason != "" {
		out.State = p.Status.Reason
	}
	for _, c := range p.Status.Conditions {
		out.Ready = out.Ready || c.Type == v1.PodReady && c.Status == v1.ConditionTrue
	}
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		out.Restarts += s.RestartCount
		if w := s.State.Waiting; w != nil && w.Reason != "" && w.Reason != "PodInitializing" {
			out.State = w.Reason
		}
	}
	for _, c := range p.Spec.Containers {
		out.Containers = append(out.Containers, c.Name)
	}
	for _, c := range p.Spec.InitContainers {
		out.Containers = append(out.Containers, c.Name)
	}
	if p.DeletionTimestamp != nil {
		out.State = "Terminating"
	}
	return out
}

// listProblems returns the conditions that islet status shows, as text. The number of elements is limited.
func listProblems(st *api.Status) []string {
	out := []string{}
	for _, a := range api.FindAttention(st) {
		out = append(out, a.String())
	}
	if n := len(out); n > maxAttention {
		out = append(out[:maxAttention], fmt.Sprintf("and %d more: see islet status", n-maxAttention))
	}
	return out
}
