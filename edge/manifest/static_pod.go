package manifest

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/demand"
	"github.com/islet-edge/islet/internal/keys"
)

// makeStatic turns a pod into a static pod of this node, as a kubelet does
// (https://kubernetes.io/docs/tasks/configure-pod-container/static-pod/). It does not change pods of the API server.
//
// There are three differences from a kubelet. First, the pod's UID is derived from the whole content of the manifest. A UID in the manifest
// is treated like any other content. Therefore a copy of a pod from kubectl's output is not mistaken for that pod, and a changed manifest
// gets another UID. Second, the name of a pod of the local source (`islet apply`) or of a bundle does not get the node's name as a suffix,
// because users apply and delete the pod by its name on this node. Third, a pod that names another node is rejected: see checkNode.
func makeStatic(pod *v1.Pod, raw []byte, o Options) error {
	if o.Source == keys.SourceAPI {
		return nil
	}
	images, err := fixImages(&pod.Spec, o)
	if err != nil {
		return err
	}
	uid, err := uidOf(raw, images, o)
	if err != nil {
		return err
	}
	pod.ObjectMeta = metav1.ObjectMeta{
		Name:            pod.Name,
		Namespace:       pod.Namespace,
		UID:             uid,
		Labels:          pod.Labels,
		Annotations:     pod.Annotations,
		OwnerReferences: pod.OwnerReferences,
		Finalizers:      pod.Finalizers,
	}
	if pod.Namespace == "" {
		pod.Namespace = metav1.NamespaceDefault
	}
	if o.Source != keys.SourceLocal && o.Source != keys.SourceBundle {
		pod.Name += "-" + strings.ToLower(o.NodeName)
	}
	pod.Spec.NodeName = o.NodeName
	demand.SetPriority(pod)
	if pod.Annotations == nil {
		pod.Annotations = make(map[string]string, 3)
	}
	delete(pod.Annotations, v1.MirrorPodAnnotationKey)
	delete(pod.Annotations, keys.ConfigSeen)
	pod.Annotations[keys.ConfigHash] = string(uid)
	pod.Annotations[keys.ConfigSource] = o.Source
	if !o.Seen.IsZero() {
		pod.Annotations[keys.ConfigSeen] = o.Seen.Format(time.RFC3339Nano)
	}
	if o.Source != keys.SourceHTTP {
		tolerateNoExecute(pod)
	}
	pod.Status = v1.PodStatus{Phase: v1.PodPending}
	return nil
}

// uidOf derives a UID from the content and the origin of a manifest. The UID stays the same after a restart, and in releases with
// additional defaults. The list images contains the references with a digest of a bundle's pod. The UID of a pod from a file also depends
// on the name of the node, and the UID of a pod from a URL does not. A kubelet makes the same distinction.
func uidOf(raw []byte, images []string, o Options) (types.UID, error) {
	var content any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&content); err != nil {
		return "", fmt.Errorf("derive the UID: %w", err)
	}
	canonical, err := json.Marshal(content) // sorts the keys
	if err != nil {
		return "", fmt.Errorf("derive the UID: %w", err)
	}
	h := fnv.New128a()
	h.Write(canonical)
	switch o.Source {
	case keys.SourceFile:
		fmt.Fprintf(h, "host:%sfile:%s", o.NodeName, o.Origin)
	case keys.SourceHTTP:
		fmt.Fprintf(h, "url:%s", o.Origin)
	case keys.SourceBundle:
		fmt.Fprintf(h, "host:%sbundle:%q", o.NodeName, images)
	default:
		fmt.Fprintf(h, "host:%slocal", o.NodeName)
	}
	return types.UID(hex.EncodeToString(h.Sum(nil))), nil
}

// tolerateNoExecute adds a toleration to a pod, so that taints do not evict it.
func tolerateNoExecute(pod *v1.Pod) {
	want := v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}
	for _, existing := range pod.Spec.Tolerations {
		if existing == want {
			return
		}
	}
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, want)
}
