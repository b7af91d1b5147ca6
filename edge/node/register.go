package node

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/kube"
)

// Deprecated labels that older manifests select. A kubelet still sets them.
const (
	betaOS   = "beta.kubernetes.io/os"
	betaArch = "beta.kubernetes.io/arch"
)

// defaultLabels contains the keys of the labels that a kubelet sets at each start, also on an existing Node.
const defaultLabels = v1.LabelHostname + " " + v1.LabelOSStable + " " + v1.LabelArchStable + " " + betaOS + " " + betaArch + " " +
	v1.LabelWindowsBuild + " " + v1.LabelTopologyZone + " " + v1.LabelTopologyRegion + " " + v1.LabelFailureDomainBetaZone + " " +
	v1.LabelFailureDomainBetaRegion + " " + v1.LabelInstanceTypeStable + " " + v1.LabelInstanceType

// register returns the Node from the API server. If the Node does not exist, register creates it. It also sets the standard labels of an
// existing Node. The returned Node does not contain this change, but the watch reports it.
func (n *Node) register(ctx context.Context) (*v1.Node, error) {
	n.Startup.Registering()
	node, err := kube.Get[v1.Node](ctx, n.Client, "", n.Name)
	switch {
	case apierrors.IsNotFound(err) && n.Register:
		if node, err = n.create(ctx); err != nil {
			return nil, err
		}
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no Node %s, and this node must not register itself (registerNode is false): %w", n.Name, err)
	case err != nil:
		return nil, fmt.Errorf("read the Node: %w", err)
	default:
		n.Startup.Found()
	}
	if n.Register {
		return node, n.reconcile(ctx, node)
	}
	return node, nil
}

// standardLabels returns the labels that are also set on an existing Node, as by a kubelet. These are the facts about the machine, and the
// labels in the configuration with the same keys or about the topology, which take precedence. A label with an empty value is removed. See
// https://kubernetes.io/docs/reference/labels-annotations-taints/.
func (n *Node) standardLabels() map[string]string {
	labels := map[string]string{
		v1.LabelHostname: n.Name, v1.LabelOSStable: runtime.GOOS, v1.LabelArchStable: runtime.GOARCH,
		betaOS: runtime.GOOS, betaArch: runtime.GOARCH,
	}
	for _, key := range strings.Fields(defaultLabels) {
		if value, found := n.Labels[key]; found {
			labels[key] = value
		}
	}
	return labels
}

func (n *Node) create(ctx context.Context) (*v1.Node, error) {
	facts, err := n.Facts(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the state of this machine: %w", err)
	}
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.standardLabels(), Annotations: map[string]string{}}}
	maps.Copy(node.Labels, n.Labels)
	for key, value := range n.KeptAnnotations {
		if value != "" {
			node.Annotations[key] = value
		}
	}
	node.Spec = v1.NodeSpec{ProviderID: n.ProviderID, Unschedulable: n.Cordoned, Taints: n.Taints}
	if n.Cordoned {
		taint := v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}
		node.Spec.Taints = append(slices.Clone(node.Spec.Taints), taint)
	}
	node.Status = n.newStatus(facts, v1.NodeStatus{})
	m, err := kube.Create(ctx, n.Client, node)
	if apierrors.IsAlreadyExists(err) { // another program has created the Node in the meantime
		n.Startup.Found()
		return kube.Get[v1.Node](ctx, n.Client, "", n.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("register this node: %w", err)
	}
	n.Log.Info("registered as a node", "node", n.Name)
	n.Startup.Created()
	n.tellReady(&node.Status)
	node.ObjectMeta = *m
	return node, nil
}

// tellReady reports to Startup that the API server has a status in which the Node is ready.
func (n *Node) tellReady(s *v1.NodeStatus) {
	if slices.ContainsFunc(s.Conditions, func(c v1.NodeCondition) bool { return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue }) {
		n.Startup.Ready()
	}
}

// reconcile sets the standard labels of an existing Node, and removes RemovedLabels. Other labels and the taints of the configuration
// (--node-labels, registerWithTaints) are set only when the Node is created, as by a kubelet, because an administrator may have changed
// them since. reconcile also clears the managedFields, unless server-side apply is used. The managedFields are most of a Node's metadata,
// and the answer to every report contains the metadata.
// https://kubernetes.io/docs/reference/using-api/server-side-apply/#clearing-managedfields
func (n *Node) reconcile(ctx context.Context, node *v1.Node) error {
	wrong := map[string]any{}
	for key, want := range n.standardLabels() {
		if have, found := node.Labels[key]; want == "" && found {
			wrong[key] = nil
		} else if have != want {
			wrong[key] = want
		}
	}
	for _, key := range n.RemovedLabels {
		if _, found := node.Labels[key]; found {
			wrong[key] = nil
		}
	}
	change := map[string]any{}
	if len(wrong) > 0 {
		change["labels"] = wrong
	}
	applied := func(f metav1.ManagedFieldsEntry) bool { return f.Operation == metav1.ManagedFieldsOperationApply }
	if len(node.ManagedFields) > 0 && !slices.ContainsFunc(node.ManagedFields, applied) {
		change["managedFields"] = noManagedFields
	}
	if len(change) == 0 {
		return nil
	}
	data, err := json.Marshal(map[string]any{"metadata": change})
	if err != nil {
		return fmt.Errorf("encode labels: %w", err)
	}
	if _, err := kube.Patch[v1.Node](ctx, n.Client, "", n.Name, types.MergePatchType, data, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("set the labels of the Node: %w", err)
	}
	return nil
}

// keepAnnotations restores the annotations of KeptAnnotations and KeptNow.
func (r *reporter) keepAnnotations(ctx context.Context) error {
	wrong := map[string]any{}
	annotations := maps.Clone(r.KeptAnnotations)
	if r.KeptNow != nil {
		if annotations == nil {
			annotations = map[string]string{}
		}
		maps.Copy(annotations, r.KeptNow())
	}
	for key, want := range annotations {
		if have, found := r.server.Annotations[key]; want == "" && found {
			wrong[key] = nil
		} else if have != want {
			wrong[key] = want
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": wrong}})
	if err != nil {
		return fmt.Errorf("encode annotations: %w", err)
	}
	m, err := kube.Patch[v1.Node](ctx, r.Client, "", r.Name, types.MergePatchType, data, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("set the annotations of the Node: %w", err)
	}
	if m.UID != r.server.UID {
		return errDeleted // the Node was deleted, and another program has created it again
	}
	r.server = &v1.Node{ObjectMeta: *m, Spec: r.server.Spec, Status: r.server.Status}
	r.storeNode(ctx, r.server)
	return nil
}

// noManagedFields is a value for managedFields that makes the API server clear this field.
var noManagedFields = []map[string]any{{}}
