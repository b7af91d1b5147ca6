package configure

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/api"
	"github.com/islet-edge/islet/agent/trial"
	"github.com/islet-edge/islet/keys"
)

// Show is what the node was sent, what it uses, and why.
func (k *Keeper) Show() api.Configuration {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := &k.record
	out := api.Configuration{
		Active: ref(k.active()), Good: ref(r.Good), Before: ref(r.Before), Attempts: r.Attempts,
		Follows: k.follows.Source, FollowProblem: k.follows.Problem, Waiting: k.waiting, Problem: k.problem(),
	}
	if r.Assigned != nil {
		out.Assigned = new(ref(r.Assigned))
	}
	if r.Trial != nil {
		out.Trying = true
	}
	if k.ending {
		out.Trying = true
	}
	if f := r.Failed; f != nil {
		out.Failed = &api.ConfigurationFailure{ID: f.ID, Why: f.Why, At: f.At}
	}
	for _, o := range r.History {
		out.History = append(out.History, api.ConfigurationTrial{ID: o.ID, From: o.From, At: o.At, Seconds: o.Took, Why: o.Why})
	}
	return out
}

func ref(c *trial.Configuration) api.ConfigurationRef {
	if c.IsLocal() {
		return api.ConfigurationRef{ID: "local", From: trial.Local}
	}
	return api.ConfigurationRef{ID: c.ID, From: c.Source.String(), At: c.At, Kubelet: c.Kubelet, Edge: c.Edge, Consent: c.Consent}
}

// active is the one that this process uses.
func (k *Keeper) active() *trial.Configuration {
	if k.fell != nil {
		return nil
	}
	return k.record.Use(k.c.Start.OnTrial())
}

// problem is why it is not the last one that came, empty: it is, or is on the way to be.
func (k *Keeper) problem() string {
	switch r := &k.record; {
	case k.broken != nil:
		return "what the node was sent is not known any more: " + k.broken.Error()
	case k.fell != nil:
		return fmt.Sprintf("configuration %s cannot be used any more: %v", r.Good.Name(), k.fell)
	case r.Failed != nil:
		return fmt.Sprintf("configuration %s failed: %s", r.Failed.ID, r.Failed.Why)
	}
	return ""
}

// Problems are for islet status.
func (k *Keeper) Problems() (out []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p := k.problem(); p != "" {
		out = append(out, p+" (islet config)")
	}
	if k.follows.Problem != "" {
		out = append(out, "the configuration of "+k.follows.Source+" cannot be followed: "+k.follows.Problem)
	}
	return out
}

// Conditions is the condition of the Node, of a node that was sent something. It has the name
// of the kubelet's that had one.
func (k *Keeper) Conditions() []v1.NodeCondition {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := v1.NodeCondition{Type: keys.ConfigurationCondition, Status: v1.ConditionTrue, Reason: "Good", Message: "using configuration " + k.active().Name()}
	switch p := k.problem(); {
	case !k.record.Used() && k.broken == nil && k.follows == Followed{}:
		return nil
	case k.record.Trial != nil:
		c.Status, c.Reason, c.Message = v1.ConditionUnknown, "OnTrial", fmt.Sprintf("configuration %s is tried, the last known good one is %s", k.record.Assigned.Name(), k.record.Good.Name())
	case k.record.Assigned != nil && p == "":
		c.Status, c.Reason, c.Message = v1.ConditionUnknown, "Assigned", fmt.Sprintf("configuration %s is to be tried, the last known good one is %s", k.record.Assigned.Name(), k.record.Good.Name())
	case p != "":
		c.Status, c.Reason, c.Message = v1.ConditionFalse, "Failed", "using configuration "+k.active().Name()+"; "+p
	case k.follows.Problem != "":
		c.Status, c.Reason, c.Message = v1.ConditionFalse, "CannotFollow", k.follows.Source+": "+k.follows.Problem
	}
	if len(c.Message) > maxMessage {
		c.Message = c.Message[:maxMessage] + " ..."
	}
	return []v1.NodeCondition{c}
}

const maxMessage = 1 << 10

// Annotations are those of the Node: what status.config of a Node said in the past, which no API
// server stores since the kubelet's own feature was removed.
func (k *Keeper) Annotations() map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.record.Used() {
		return map[string]string{keys.ConfigurationStatus: ""}
	}
	s := v1.NodeConfigStatus{Assigned: source(k.assigned()), Active: source(k.active()), LastKnownGood: source(k.record.Good), Error: k.problem()}
	if len(s.Error) > maxMessage {
		s.Error = s.Error[:maxMessage] + " ..."
	}
	text, err := json.Marshal(struct {
		v1.NodeConfigStatus
		AssignedID string `json:"assignedID,omitempty"`
		ActiveID   string `json:"activeID"`
		GoodID     string `json:"lastKnownGoodID"`
	}{s, ref(k.assigned()).ID, ref(k.active()).ID, ref(k.record.Good).ID})
	if err != nil {
		return nil
	}
	return map[string]string{keys.ConfigurationStatus: string(text)}
}

// assigned is the one that is wanted.
func (k *Keeper) assigned() *trial.Configuration {
	if k.record.Assigned != nil {
		return k.record.Assigned
	}
	return k.record.Good
}

// source is where a configuration came from, if that is a ConfigMap.
func source(c *trial.Configuration) *v1.NodeConfigSource {
	if c.IsLocal() || c.Source.Name == "" {
		return nil
	}
	s := c.Source
	return &v1.NodeConfigSource{ConfigMap: &v1.ConfigMapNodeConfigSource{
		Namespace: s.Namespace, Name: s.Name, UID: types.UID(s.UID), ResourceVersion: s.ResourceVersion, KubeletConfigKey: KubeletKey,
	}}
}

// Keys of a ConfigMap; that of the KubeletConfiguration is kubeadm's.
const (
	KubeletKey = "kubelet"
	EdgeKey    = "edge"
)

// Collectors are the metrics, under the names that a kubelet had for them. Of a node that
// was sent nothing there are none.
func (k *Keeper) Collectors() []prometheus.Collector {
	return []prometheus.Collector{collector{k}}
}

type collector struct{ k *Keeper }

var (
	labels    = []string{"node_config_source", "node_config_uid", "node_config_resource_version", "node_config_kubelet_key"}
	assigned  = prometheus.NewDesc("kubelet_node_config_assigned", "The node's understanding of intended config. The count is always 1.", labels, nil)
	inUse     = prometheus.NewDesc("kubelet_node_config_active", "The config source the node is actively using. The count is always 1.", labels, nil)
	knownGood = prometheus.NewDesc("kubelet_node_config_last_known_good", "The config source the node will fall back to when it encounters certain errors. The count is always 1.", labels, nil)
	failed    = prometheus.NewDesc("kubelet_node_config_error", "This metric is true (1) if the node is experiencing a configuration-related error, false (0) otherwise.", nil, nil)
	trials    = prometheus.NewDesc("islet_configuration_trials", "Ended trials of configurations among the last twenty, by how they ended.", []string{"outcome"}, nil)
)

func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{assigned, inUse, knownGood, failed, trials} {
		ch <- d
	}
}

func (c collector) Collect(ch chan<- prometheus.Metric) {
	k := c.k
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.record.Used() {
		return
	}
	for _, m := range []struct {
		desc *prometheus.Desc
		of   *trial.Configuration
	}{{assigned, k.assigned()}, {inUse, k.active()}, {knownGood, k.record.Good}} {
		from, s := "local", trial.Source{}
		if !m.of.IsLocal() {
			s = m.of.Source
			if from = s.File; s.Name != "" {
				from = "/api/v1/namespaces/" + s.Namespace + "/configmaps/" + s.Name
			}
		}
		key := ""
		if s.Name != "" {
			key = KubeletKey
		}
		ch <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, 1, from, s.UID, s.ResourceVersion, key)
	}
	bad := 0.0
	if k.problem() != "" {
		bad = 1
	}
	ch <- prometheus.MustNewConstMetric(failed, prometheus.GaugeValue, bad)
	ended := map[string]int{"accepted": 0, "failed": 0}
	for _, o := range k.record.History {
		if o.Why == "" {
			ended["accepted"]++
		} else {
			ended["failed"]++
		}
	}
	for _, how := range slices.Sorted(maps.Keys(ended)) {
		ch <- prometheus.MustNewConstMetric(trials, prometheus.GaugeValue, float64(ended[how]), how)
	}
}
