package page

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
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
	Pods      []pod       `json:"pods"` // failing ones first
	More      int         `json:"more"` // number of pods that are not listed
	Memory    uint64      `json:"memory"`
	Cores     int         `json:"cores"`
	Disk      *api.Disk   `json:"disk"`
	Interval  int         `json:"interval"` // seconds
	History   []Reading   `json:"history"`
	Events    []api.Event `json:"events"` // newest first
	Device    device      `json:"device"`
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

// A choice selects the contents of a document.
type choice struct {
	warnings       bool   // only events of the type Warning
	namespace, pod string // only this pod; empty for all pods
}

func (c choice) pods(all []v1.Pod) []v1.Pod {
	if c.namespace == "" && c.pod == "" {
		return all
	}
	for i := range all {
		if all[i].Namespace == c.namespace && all[i].Name == c.pod {
			return all[i : i+1]
		}
	}
	return nil
}

// collectDocument collects the data of the page. It omits values that cannot be measured. It returns an error if the node's status or
// the list of pods is not available.
func (p *Page) collectDocument(ctx context.Context, c choice) (*document, error) {
	var st api.Status
	if err := p.get(ctx, api.PathStatus, &st); err != nil {
		return nil, err
	}
	d := &document{Node: st.Node, Version: st.Version, Now: st.Now, Started: st.Started,
		Attention: listProblems(&st), Interval: int(Interval / time.Second), History: p.history.list(),
		Counts: fmt.Sprintf("%d of %d ready", st.Pods.Ready, st.Pods.Total), Cores: runtime.NumCPU(), Pods: []pod{}, Events: []api.Event{},
		Device: p.device(ctx, &st)}
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
	d.pods(c.pods(pods.Items), sum.Pods, st.Troubles)
	var events []api.Event
	if p.get(ctx, api.PathEvents, &events) == nil {
		d.Events = append(d.Events, newestEvents(events, c.warnings)...)
	}
	return d, nil
}

// newestEvents returns the last maxEvents events, newest first. If the parameter warnings is true, it considers only
// warnings.
func newestEvents(all []api.Event, warnings bool) (out []api.Event) {
	for _, e := range all {
		if !warnings || e.Type == v1.EventTypeWarning {
			out = append(out, e)
		}
	}
	sorting.StableBy(out, func(a, b api.Event) int { return b.Last.Compare(a.Last) })
	return out[:min(len(out), maxEvents)]
}

func (d *document) machine(sum *stats.Summary) {
	if m := sum.Node.Memory; m != nil && m.AvailableBytes != nil && m.WorkingSetBytes != nil {
		d.Memory = *m.AvailableBytes + *m.WorkingSetBytes
	}
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
