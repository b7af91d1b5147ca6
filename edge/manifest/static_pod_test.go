package manifest

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/keys"
)

func decodeOne(t *testing.T, data string, o Options) *v1.Pod {
	t.Helper()
	set, err := Decode([]byte(data), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(set.Pods) != 1 || len(set.Objects) > 0 {
		t.Fatalf("got %d pods and %d objects", len(set.Pods), len(set.Objects))
	}
	return set.Pods[0]
}

func TestStaticPod(t *testing.T) {
	o := fileOptions()
	o.Seen = time.Date(2026, 11, 21, 2, 5, 0, 7, time.UTC)
	pod := decodeOne(t, web, o)
	if pod.Name != "web-node-1" || pod.Namespace != "default" || pod.Spec.NodeName != "node-1" || pod.Status.Phase != v1.PodPending {
		t.Errorf("got %s/%s on %s, %s", pod.Namespace, pod.Name, pod.Spec.NodeName, pod.Status.Phase)
	}
	want := map[string]string{keys.ConfigHash: string(pod.UID), keys.ConfigSource: "file",
		keys.ConfigSeen: "2026-11-21T02:05:00.000000007Z"}
	if len(pod.UID) != 32 || len(pod.Annotations) != len(want) {
		t.Errorf("got UID %q, annotations %v", pod.UID, pod.Annotations)
	}
	for key, value := range want {
		if pod.Annotations[key] != value {
			t.Errorf("%s is %q, want %q", key, pod.Annotations[key], value)
		}
	}
	everything := v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}
	if len(pod.Spec.Tolerations) != 1 || pod.Spec.Tolerations[0] != everything {
		t.Errorf("got tolerations %v", pod.Spec.Tolerations)
	}
	again := decodeOne(t, strings.Replace(web, "spec:", "spec:\n  tolerations: [{operator: Exists, effect: NoExecute}]", 1), o)
	if len(again.Spec.Tolerations) != 1 {
		t.Errorf("added to %v", again.Spec.Tolerations)
	}
}

// TestPriority checks that a static pod has the priority in its manifest, or else the priority of its class. Only the two classes that
// every cluster has are known.
func TestPriority(t *testing.T) {
	for class, want := range map[string]int32{
		"priorityClassName: system-node-critical":                2_000_001_000,
		"priorityClassName: system-cluster-critical":             2_000_000_000,
		"priorityClassName: system-node-critical\n  priority: 7": 7,
		"priorityClassName: of-the-cluster":                      0,
		"hostNetwork: false":                                     0,
	} {
		for _, source := range []string{keys.SourceFile, keys.SourceHTTP, keys.SourceLocal} {
			o := fileOptions()
			o.Source = source
			pod := decodeOne(t, strings.Replace(web, "spec:", "spec:\n  "+class, 1), o)
			if got := pod.Spec.Priority; (got == nil) != (want == 0) || got != nil && *got != want {
				t.Errorf("%s, from %s: priority %v, want %d", class, source, got, want)
			}
		}
	}
}

// TestUID checks that a comment, another encoding and another time of reading do not change the pod UID of a manifest. Other content,
// another path, another source and another node change the UID. For a URL, the node has no effect.
func TestUID(t *testing.T) {
	seen, elsewhere, otherNode, url, local := fileOptions(), fileOptions(), fileOptions(), fileOptions(), fileOptions()
	seen.Seen = time.Unix(1, 0)
	elsewhere.Origin = "/etc/islet/other.yaml"
	otherNode.NodeName = "node-2"
	url.Source = keys.SourceHTTP
	local.Source = keys.SourceLocal
	otherURLNode := url
	otherURLNode.NodeName = "node-2"
	asJSON := `{"kind":"Pod","apiVersion":"v1","spec":{"containers":[{"image":"example.com/web:1","name":"web"}]},"metadata":{"name":"web"}}`
	edit := func(old, new string) string { return strings.Replace(web, old, new, 1) }
	uid := func(data string, o Options) string { return string(decodeOne(t, data, o).UID) }
	first := uid(web, fileOptions())
	for name, same := range map[string]string{
		"comment": uid("# a\n"+web, fileOptions()), "JSON": uid(asJSON, fileOptions()), "later": uid(web, seen),
	} {
		if same != first {
			t.Errorf("%s made it another pod", name)
		}
	}
	set := map[string]string{first: "first"}
	for name, other := range map[string]string{
		"image": uid(edit("web:1", "web:2"), fileOptions()),
		"label": uid(edit("  name: web\n", "  name: web\n  labels: {a: b}\n"), fileOptions()),
		"uid":   uid(edit("  name: web\n", "  name: web\n  uid: mine\n"), fileOptions()), "file": uid(web, elsewhere),
		"node": uid(web, otherNode),
		"URL":  uid(web, url), "local": uid(web, local),
	} {
		if set[other] != "" {
			t.Errorf("%s and %s have the same UID", name, set[other])
		}
		set[other] = name
	}
	if uid(web, url) != uid(web, otherURLNode) {
		t.Error("the node is part of the UID for URLs")
	}
}

func TestSources(t *testing.T) {
	for source, want := range map[string]struct {
		name        string
		tolerations int
	}{
		keys.SourceFile: {"web-node-1", 1}, keys.SourceHTTP: {"web-node-1", 0}, keys.SourceLocal: {"web", 1},
	} {
		o := fileOptions()
		o.Source = source
		pod := decodeOne(t, web, o)
		if pod.Name != want.name || len(pod.Spec.Tolerations) != want.tolerations || pod.Annotations[keys.ConfigSource] != source {
			t.Errorf("%s: got %s, %v, %v", source, pod.Name, pod.Spec.Tolerations, pod.Annotations)
		}
	}
	o := fileOptions()
	o.Source = keys.SourceAPI
	pod := decodeOne(t, strings.Replace(web, "  name: web\n", "  name: web\n  namespace: a\n  uid: given\n", 1), o)
	if pod.Name != "web" || pod.UID != "given" || pod.Annotations != nil || pod.Spec.NodeName != "" {
		t.Errorf("changed a pod of the API server: %v", pod.ObjectMeta)
	}
}

// TestCopyOfPod checks that the output of kubectl for a running pod is a valid manifest.
func TestCopyOfPod(t *testing.T) {
	pod := decodeOne(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"x","uid":"../../etc","resourceVersion":"5","generation":3,
		"creationTimestamp":"2020-01-01T00:00:00Z","deletionTimestamp":"2020-01-01T00:00:00Z","deletionGracePeriodSeconds":0,"selfLink":"/x","generateName":"a-",
		"labels":{"a":"b"},"annotations":{"kubernetes.io/config.mirror":"1","kubernetes.io/config.hash":"2","kubernetes.io/config.source":"api","kubernetes.io/config.seen":"3","mine":"4"},
		"managedFields":[{"manager":"kubectl","operation":"Update","apiVersion":"v1","time":"2020-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:a":{}}}]},
		"spec":{"nodeName":"node-1","containers":[{"name":"a","image":"a"}]},"status":{"phase":"Running","podIP":"10.0.0.1"}}`, fileOptions())
	meta, _ := json.Marshal(pod.ObjectMeta)
	want := `{"name":"a-node-1","namespace":"x","uid":"` + string(pod.UID) +
		`","labels":{"a":"b"},"annotations":{"kubernetes.io/config.hash":"` + string(pod.UID) +
		`","kubernetes.io/config.source":"file","mine":"4"}}`
	if string(meta) != want {
		t.Errorf("got  %s\nwant %s", meta, want)
	}
	if pod.Status.PodIP != "" || pod.Status.Phase != v1.PodPending || pod.Spec.NodeName != "node-1" ||
		strings.Contains(string(pod.UID), "/") {
		t.Errorf("got %v on %s", pod.Status, pod.Spec.NodeName)
	}
}

// TestReferences checks that a static pod cannot reference objects that exist only in an API server. Its ConfigMaps, Secrets and
// PersistentVolumeClaims must come from manifests.
func TestReferences(t *testing.T) {
	volume := func(source string) string {
		return `{"volumes":[{"name":"v",` + source + `}],"containers":[{"name":"a","image":"a"}]}`
	}
	container := func(part string) string { return `{"containers":[{"name":"a","image":"a",` + part + `}]}` }
	for spec, field := range map[string]string{
		`{"resourceClaims":[{"name":"a","resourceClaimName":"a"}],"containers":[{"name":"a","image":"a"}]}`: "spec.resourceClaims",
		volume(`"csi":{"driver":"a.b"}`):                                                                                "spec.volumes[0].csi",
		volume(`"cephfs":{"monitors":["a"],"secretRef":{"name":"a"}}`):                                                  "spec.volumes[0].cephfs",
		volume(`"projected":{"sources":[{"clusterTrustBundle":{"name":"a","path":"a"}}]}`):                              "spec.volumes[0].projected.sources[0].clusterTrustBundle",
		volume(`"projected":{"sources":[{"podCertificate":{"signerName":"a.b/c","keyType":"ED25519","keyPath":"a"}}]}`): "spec.volumes[0].projected.sources[0].podCertificate",
	} {
		data := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":` + spec + `}`
		_, err := Decode([]byte(data), fileOptions())
		if set := ErrorsIn(err); len(set) != 1 || set[0].Field != field ||
			!strings.HasPrefix(set[0].Detail, "Forbidden: a static pod may not refer to ") {
			t.Errorf("%s: got %v", field, err)
		}
	}
	for _, spec := range []string{
		volume(`"projected":{"sources":[{"downwardAPI":{"items":[{"path":"a","fieldRef":{"fieldPath":"metadata.name"}}]}}]}`),
		volume(`"emptyDir":{}`), volume(`"hostPath":{"path":"/"}`),
		volume(`"cephfs":{"monitors":["a"]}`), volume(`"image":{"reference":"a"}`), volume(`"nfs":{"server":"a","path":"/"}`),
		`{"imagePullSecrets":[{"name":"a"}],"containers":[{"name":"a","image":"a"}]}`,
		container(`"envFrom":[{"configMapRef":{"name":"a"}}]`),
		container(`"envFrom":[{"secretRef":{"name":"a"}}]`),
		container(`"env":[{"name":"A","valueFrom":{"configMapKeyRef":{"name":"a","key":"b"}}}]`),
		container(`"env":[{"name":"A","valueFrom":{"secretKeyRef":{"name":"a","key":"b"}}}]`),
		volume(`"configMap":{"name":"a"}`),
		volume(`"secret":{"secretName":"a"}`),
		volume(`"persistentVolumeClaim":{"claimName":"a"}`),
		volume(`"projected":{"sources":[{"configMap":{"name":"a"}}]}`),
		volume(`"projected":{"sources":[{"secret":{"name":"a"}}]}`),
	} {
		decodeOne(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":`+spec+`}`, fileOptions())
	}
}
