package csi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/agent/volume/storage"
	"github.com/islet-edge/islet/internal/podspec"
)

// tokensKey is the key of the tokens in the volume context or in the secrets.
const tokensKey = "csi.storage.k8s.io/serviceAccount.tokens"

// addPodInfo adds information about the pod, and tokens, to a request if the CSIDriver object asks for them.
// https://kubernetes-csi.github.io/docs/pod-info.html
// https://kubernetes-csi.github.io/docs/token-requests.html
func (d *Drivers) addPodInfo(ctx context.Context, o *storagev1.CSIDriver, v storage.Volume, pod *v1.Pod,
	req *spec.NodePublishVolumeRequest) error {
	if o == nil {
		return nil
	}
	add := map[string]string{}
	if podspec.IsTrue(o.Spec.PodInfoOnMount) {
		add["csi.storage.k8s.io/pod.name"] = pod.Name
		add["csi.storage.k8s.io/pod.namespace"] = pod.Namespace
		add["csi.storage.k8s.io/pod.uid"] = string(pod.UID)
		add["csi.storage.k8s.io/serviceAccount.name"] = pod.Spec.ServiceAccountName
		add["csi.storage.k8s.io/ephemeral"] = strconv.FormatBool(v.Inline)
	}
	tokens, err := d.requestTokens(ctx, o.Spec.TokenRequests, pod)
	if err != nil {
		return err
	}
	if tokens != "" && podspec.IsTrue(o.Spec.ServiceAccountTokenInSecrets) {
		req.Secrets = mergeMaps(req.Secrets, map[string]string{tokensKey: tokens})
	} else if tokens != "" {
		add[tokensKey] = tokens
	}
	if v.Block { // a kubelet sends no tokens for block volumes
		delete(add, tokensKey)
	}
	req.VolumeContext = mergeMaps(req.VolumeContext, add)
	return nil
}

// requestTokens returns the requested tokens by audience, as JSON. It returns "" if the driver requests no tokens.
func (d *Drivers) requestTokens(ctx context.Context, wanted []storagev1.TokenRequest, pod *v1.Pod) (string, error) {
	if len(wanted) == 0 {
		return "", nil
	}
	type token struct {
		Token   string      `json:"token"`
		Expires metav1.Time `json:"expirationTimestamp"`
	}
	all := map[string]token{}
	for _, w := range wanted {
		var seconds int64
		if w.ExpirationSeconds != nil {
			seconds = *w.ExpirationSeconds
		}
		text, expires, err := d.cfg.Objects.VolumeToken(ctx, pod, w.Audience, seconds)
		if err != nil {
			return "", fmt.Errorf("get service account token attributes: %w", err)
		}
		all[w.Audience] = token{text, metav1.NewTime(expires.Truncate(time.Second))}
	}
	data, err := json.Marshal(all)
	if err != nil {
		return "", fmt.Errorf("encode the tokens: %w", err)
	}
	return string(data), nil
}

// mergeMaps returns the entries of two maps. For a key in both of them, it returns the value from the first.
func mergeMaps(to, add map[string]string) map[string]string {
	if len(add) == 0 {
		return to
	}
	out := maps.Clone(add)
	for k, v := range to {
		if _, there := out[k]; !there {
			out[k] = v
		}
	}
	return out
}
