package configure

import (
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/change/trial"
	"github.com/islet-edge/islet/internal/keys"
)

// Conditions returns the configuration condition of the Node, or nil if nothing was ever sent to the node. It has the
// type that kubelets used for dynamic configuration.
func (k *Keeper) Conditions() []v1.NodeCondition {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := v1.NodeCondition{Type: keys.ConfigurationCondition, Status: v1.ConditionTrue, Reason: "Good",
		Message: "using configuration " + k.activeConfiguration().Name()}
	switch p := k.unusedReason(); {
	case !k.record.EverSent() && k.recordError == nil && k.followedSource == FollowedSource{}:
		return nil
	case k.record.Trial != nil && !k.record.HasProgram():
		c.Status, c.Reason, c.Message = v1.ConditionUnknown, "OnTrial",
			fmt.Sprintf("configuration %s is on trial, the last known good one is %s", k.assignedConfiguration().Name(),
				k.record.Good.Name())
	case k.record.Assigned != nil && !k.record.HasProgram() && p == "":
		c.Status, c.Reason, c.Message = v1.ConditionUnknown, "Assigned",
			fmt.Sprintf("configuration %s waits for its trial, the last known good one is %s", k.assignedConfiguration().Name(),
				k.record.Good.Name())
	case p != "":
		c.Status, c.Reason, c.Message = v1.ConditionFalse, "Failed", "using configuration "+k.activeConfiguration().Name()+"; "+p
	case k.followedSource.Problem != "":
		c.Status, c.Reason, c.Message = v1.ConditionFalse, "CannotFollow", k.followedSource.Source+": "+k.followedSource.Problem
	}
	if len(c.Message) > maxMessage {
		c.Message = c.Message[:maxMessage] + " ..."
	}
	return []v1.NodeCondition{c}
}

// Annotations returns annotations of the Node. They replace the field status.config, which API servers have not
// stored since the kubelet's feature was removed.
func (k *Keeper) Annotations() map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.record.EverSent() {
		return map[string]string{keys.ConfigurationStatus: ""}
	}
	s := v1.NodeConfigStatus{Assigned: configMapSource(k.assignedConfiguration()), Active: configMapSource(k.activeConfiguration()),
		LastKnownGood: configMapSource(k.record.Good), Error: k.unusedReason()}
	if len(s.Error) > maxMessage {
		s.Error = s.Error[:maxMessage] + " ..."
	}
	text, err := json.Marshal(struct {
		v1.NodeConfigStatus
		AssignedID string `json:"assignedID,omitempty"`
		ActiveID   string `json:"activeID"`
		GoodID     string `json:"lastKnownGoodID"`
	}{s, k.assignedConfiguration().Reference(), k.activeConfiguration().Reference(), k.record.Good.Reference()})
	if err != nil {
		return nil
	}
	return map[string]string{keys.ConfigurationStatus: string(text)}
}

// configMapSource returns the ConfigMap from which a configuration came, or nil if it came from elsewhere.
func configMapSource(c *trial.Configuration) *v1.NodeConfigSource {
	if c.IsLocal() || c.Source.Name == "" {
		return nil
	}
	s := c.Source
	return &v1.NodeConfigSource{ConfigMap: &v1.ConfigMapNodeConfigSource{
		Namespace: s.Namespace, Name: s.Name, UID: types.UID(s.UID), ResourceVersion: s.ResourceVersion, KubeletConfigKey: KubeletKey,
	}}
}
