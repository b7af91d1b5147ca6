package manifest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/keys"
)

func TestObjects(t *testing.T) {
	set, err := Decode([]byte(`apiVersion: v1
kind: ConfigMap
metadata: {name: config, labels: {a: b}, uid: x, resourceVersion: "7"}
data: {greeting: hello}
binaryData: {logo: AAEC}
---
apiVersion: v1
kind: Secret
metadata:
  name: wifi
  namespace: net
  annotations: {kubectl.kubernetes.io/last-applied-configuration: "secret", keep: me}
data: {user: bWU=, password: b2xk}
stringData: {password: new}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], storageClassName: fast, resources: {requests: {storage: 1Gi}}}
status: {phase: Bound}
---
`+web), fileOptions())
	if err != nil || len(set.Pods) != 1 || len(set.Objects) != 3 {
		t.Fatalf("got %d pods, %d objects, %v", len(set.Pods), len(set.Objects), err)
	}
	text, err := json.Marshal(set.Objects)
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"config","namespace":"default","labels":{"a":"b"}},"data":{"greeting":"hello"},"binaryData":{"logo":"AAEC"}},` +
		`{"kind":"Secret","apiVersion":"v1","metadata":{"name":"wifi","namespace":"net","annotations":{"keep":"me"}},"data":{"password":"bmV3","user":"bWU="},"type":"Opaque"},` +
		`{"kind":"PersistentVolumeClaim","apiVersion":"v1","metadata":{"name":"data","namespace":"default"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}},"storageClassName":"fast","volumeMode":"Filesystem"},"status":{}}]`
	if string(text) != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}

// TestListsOfObjects checks that a List can contain several kinds, and that the items of a typed list may omit their kind.
func TestListsOfObjects(t *testing.T) {
	set, err := Decode([]byte(`{"apiVersion":"v1","kind":"List","items":[`+named("a")+
		`,{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}]}
		{"apiVersion":"v1","kind":"SecretList","items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}`), localOptions())
	if err != nil || len(set.Pods) != 1 || len(set.Objects) != 3 || KindOf(set.Objects[0]) != "ConfigMap" ||
		KindOf(set.Objects[2]) != "Secret" {
		t.Fatalf("got %v, %v", set, err)
	}
	o := localOptions()
	o.Source = keys.SourceAPI
	if set, err := Decode([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`), o); err == nil {
		t.Errorf("the API server's pods come with objects: %v", set)
	}
}

// TestObjectsRefused checks that the error for an invalid object names the invalid field. An API server would reject the object too.
func TestObjectsRefused(t *testing.T) {
	configMap := func(rest string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},` + rest + `}`
	}
	secret := func(rest string) string {
		return `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},` + rest + `}`
	}
	claim := func(rest string) string {
		return `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"a"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}},` + rest + `}}`
	}
	var keys []string
	for i := range maxKeys + 1 {
		keys = append(keys, fmt.Sprintf(`"%d":""`, i))
	}
	long := strings.Repeat("x", v1.MaxSecretSize+1)
	for name, test := range map[string]struct{ data, want string }{
		"no name": {`{"apiVersion":"v1","kind":"Secret","metadata":{}}`, "pods.yaml: metadata.name: Required value"},
		"way out": {`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"../a"}}`,
			`pods.yaml: ConfigMap "../a": metadata.name: Invalid value: "../a": `},
		"two dots": {`{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":".."}}`,
			`pods.yaml: PersistentVolumeClaim "..": metadata.name: Invalid value: "..": `},
		"namespace": {`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":".."}}`,
			`pods.yaml: ConfigMap "a": metadata.namespace: Invalid value: "..": `},
		"key leads out": {configMap(`"data":{"../a":"b"}`), `pods.yaml: ConfigMap "a": data[../a]: Invalid value: "../a": `},
		"key is hidden": {secret(`"data":{"..data":"Yg=="}`), `pods.yaml: Secret "a": data[..data]: Invalid value: "..data": `},
		"key twice": {configMap(`"data":{"a":"b"},"binaryData":{"a":"Yg=="}`),
			`pods.yaml: ConfigMap "a": data[a]: Invalid value: "a": duplicate of key present in binaryData`},
		"many keys": {configMap(`"data":{` + strings.Join(keys, ",") + `}`),
			`pods.yaml: ConfigMap "a": data: Too many: 10001: must have at most 10000 items`},
		"large": {configMap(`"data":{"a":"` + long + `"}`),
			`pods.yaml: ConfigMap "a": data: Too long: may not be more than 1048576 bytes`},
		"large secret": {secret(`"stringData":{"a":"` + long + `"}`),
			`pods.yaml: Secret "a": data: Too long: may not be more than 1048576 bytes`},
		"no base64":     {secret(`"data":{"a":"?secret?"}`), `pods.yaml: data[a]: Invalid value: illegal base64 data at input byte 0`},
		"number":        {configMap(`"data":{"a":1}`), `pods.yaml: data[a]: Invalid value: must be a string (in quotes), not number`},
		"unknown field": {secret(`"dat":{}`), `pods.yaml: dat: unknown field`},
		"tls":           {secret(`"type":"kubernetes.io/tls"`), `pods.yaml: Secret "a": data[tls.crt]: Required value`},
		"registry": {secret(`"type":"kubernetes.io/dockerconfigjson","stringData":{".dockerconfigjson":"hidden"}`),
			`pods.yaml: Secret "a": data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": must be JSON`},
		"service account": {secret(`"type":"kubernetes.io/service-account-token"`),
			`pods.yaml: Secret "a": type: Forbidden: a node has no service accounts of its own`},
		"no size": {`{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"a"},"spec":{"accessModes":["ReadWriteOnce"]}}`, `pods.yaml: PersistentVolumeClaim "a": spec.resources.requests[storage]: Required value`},
		"block":   {claim(`"volumeMode":"Block"`), `pods.yaml: PersistentVolumeClaim "a": spec.volumeMode: Forbidden: a claim of a manifest becomes a new directory of this node, which is not a block device`},
		"volume":  {claim(`"volumeName":"pv"`), `pods.yaml: PersistentVolumeClaim "a": spec.volumeName: Forbidden: a claim of a manifest becomes a new directory of this node`},
		"same twice": {configMap(`"data":{}`) + configMap(`"data":{}`),
			`pods.yaml: ConfigMap "a": metadata.name: Duplicate value: namespace "default" has this ConfigMap twice`},
		"version": {`{"apiVersion":"v2","kind":"Secret"}`, `pods.yaml: apiVersion: Unsupported value: "v2": a Secret is v1`},
		"service": {`{"apiVersion":"v1","kind":"Service"}`,
			`pods.yaml: kind: Unsupported value: "Service": only Pods, ConfigMaps, Secrets and PersistentVolumeClaims come from manifests`},
		"list of those": {`{"apiVersion":"apps/v1","kind":"DeploymentList","items":[]}`,
			`pods.yaml: kind: Unsupported value: "DeploymentList": only Pods, ConfigMaps, Secrets and PersistentVolumeClaims come from manifests`},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := Decode([]byte(test.data), localOptions())
			if err == nil || !set.IsEmpty() {
				t.Fatalf("got %v and error %v", set, err)
			}
			if !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got  %s\nwant %s", err, test.want)
			}
			if strings.Contains(err.Error(), "hidden\"") || strings.Contains(err.Error(), "?secret?") {
				t.Errorf("the error shows the Secret: %s", err)
			}
		})
	}
}

// TestControllers checks the error for the manifest of a controller, such as a Deployment. The error describes how to write the
// controller's pod as a manifest.
func TestControllers(t *testing.T) {
	const begin = "; write it as 'apiVersion: v1, kind: Pod, metadata: "
	for data, want := range map[string]string{
		`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop"},"spec":{"replicas":1,"template":{"spec":{"containers":[]}}}}`: begin + `{name: web, namespace: shop}', with metadata.labels and spec of its spec.template`,
		`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"replicas":3}}`:                                                          begin + `{name: web}', with metadata.labels and spec of its spec.template; write each of the 3 copies as a pod with its own name`,
		`{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"agent"}}`:                                                                               begin + `{name: agent}', with metadata.labels and spec of its spec.template`,
		`{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"once"},"spec":{"template":{"spec":{"restartPolicy":"Never"}}}}`:                              begin + `{name: once}', with metadata.labels and spec of its spec.template`,
		`{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"name":"db"},"spec":{"volumeClaimTemplates":[{"metadata":{"name":"data"}}]}}`:                 begin + `{name: db-0}', with metadata.labels and spec of its spec.template; its claim as a PersistentVolumeClaim data-db-0, and in spec.volumes '{name: data, persistentVolumeClaim: {claimName: data-db-0}}'`,
		`{"apiVersion":"batch/v1","kind":"CronJob","metadata":{"name":"tick"}}`:                                                                                 begin + `{name: tick}', with metadata.labels and spec of its spec.jobTemplate.spec.template; a node has no schedule`,
	} {
		_, err := Decode([]byte(data), fileOptions())
		set := ErrorsIn(err)
		if len(set) != 1 || set[0].Field != "kind" || !strings.HasSuffix(set[0].Detail, want) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}
