package inventory_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/islet-edge/islet/edge/inventory"
	"github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/finding"
)

const web = `apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  initContainers:
  - {name: init, image: busybox, resources: {limits: {example.com/gpu: 3}}}
  - {name: side, image: "busybox:latest", restartPolicy: Always, resources: {limits: {example.com/gpu: 1}}}
  containers:
  - name: web
    image: docker.io/library/nginx:1.29
    resources: {limits: {example.com/gpu: 1, memory: 1Gi, hugepages-2Mi: 2Mi}}
    env:
    - {name: A, valueFrom: {secretKeyRef: {name: wifi, key: password}}}
    - {name: B, valueFrom: {configMapKeyRef: {name: gone, key: x, optional: true}}}
    envFrom: [{configMapRef: {name: settings}}]
  volumes:
  - {name: v, configMap: {name: settings, items: [{key: a, path: a}]}}
  - {name: w, persistentVolumeClaim: {claimName: data}}
  - {name: x, projected: {sources: [{secret: {name: wifi}}, {configMap: {name: more}}]}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {b: x, a: z}
binaryData: {c: AA==}
---
apiVersion: v1
kind: Secret
metadata: {name: wifi, namespace: kiosk}
stringData: {password: p}
`

func TestRead(t *testing.T) {
	got, err := inventory.Read([]finding.File{{Name: "web.yaml", Data: []byte(web)}})
	if err != nil {
		t.Fatal(err)
	}
	want := &bundle.Inventory{
		Pods: []bundle.Pod{{
			Namespace: "default", Name: "web", Images: []string{"docker.io/library/busybox:latest", "docker.io/library/nginx:1.29"},
			References: []bundle.Reference{{Kind: "ConfigMap", Name: "more"}, {Kind: "ConfigMap", Name: "settings"}, {Kind: "ConfigMap", Name: "settings", Key: "a"},
				{Kind: "PersistentVolumeClaim", Name: "data"}, {Kind: "Secret", Name: "wifi"}, {Kind: "Secret", Name: "wifi", Key: "password"}},
			Devices: map[string]int64{"example.com/gpu": 3},
		}},
		Objects: []bundle.Object{{Kind: "ConfigMap", Namespace: "default", Name: "settings", Keys: []string{"a", "b", "c"}},
			{Kind: "Secret", Namespace: "kiosk", Name: "wifi", Keys: []string{"password"}, Plain: true}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	missing := strings.Join(got.MissingObjects(), "\n")
	for _, part := range []string{"ConfigMap default/more,", "PersistentVolumeClaim default/data,", "Secret default/wifi,"} {
		if !strings.Contains(missing, part) {
			t.Errorf("%q is not in\n%s", part, missing)
		}
	}
	if strings.Contains(missing, "settings") || strings.Contains(missing, "gone") {
		t.Error(missing)
	}
}

// TestReadRejects checks that a manifest that islet apply rejects is an error that names the file.
func TestReadRejects(t *testing.T) {
	for name, text := range map[string]string{
		"unknown field": strings.Replace(web, "image: busybox", "imagine: busybox", 1), "nothing": "# nothing\n",
		"another kind": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n", "twice": web + "---\n" + web,
	} {
		inv, err := inventory.Read([]finding.File{{Name: "web.yaml", Data: []byte(text)}})
		if err == nil || !strings.Contains(err.Error(), "web.yaml") {
			t.Errorf("%s: %+v, %v", name, inv, err)
		}
	}
}
