package node

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

const settings = `apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {greeting: %s, other: x}
`

const wifi = `apiVersion: v1
kind: Secret
metadata: {name: wifi}
stringData: {password: %s}
`

// reader returns a pod that uses the ConfigMap and the Secret in its volumes and its environment.
func reader(name string) string {
	return manifest(name, `    env:
    - {name: GREETING, valueFrom: {configMapKeyRef: {name: settings, key: greeting}}}
    envFrom:
    - {secretRef: {name: wifi}, prefix: WIFI_}
    volumeMounts:
    - {name: settings, mountPath: /settings}
    - {name: all, mountPath: /all}
  volumes:
  - {name: settings, configMap: {name: settings}}
  - name: all
    projected:
      sources:
      - configMap: {name: settings, items: [{key: greeting, path: hello}]}
      - secret: {name: wifi}
      - secret: {name: not-there, optional: true}
`, "sleep")
}

// file returns the content of a file in the container of a pod.
func file(m *machine.Machine, pod, path string) string {
	out, _ := m.Try("exec", pod, "--", "/podtool", "cat", path)
	return strings.TrimSuffix(out, "\n")
}

// waitForReason waits until islet describe shows the given reason for a container that does not start.
func waitForReason(m *machine.Machine, pod, why string) {
	m.WaitPods(pod+" to wait: "+why, func(pods map[string]machine.Pod) bool {
		out, _ := m.Try("describe", pod)
		return strings.Contains(out, why)
	})
}

// TestObjectsOfManifests checks that pods in the manifest directory use the ConfigMaps and Secrets in this directory. A pod whose objects
// are missing must wait and report the messages of a kubelet. A pod must see changed objects, also after a SIGKILL of the agent and a
// reboot.
func TestObjectsOfManifests(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	m.Write("manifests/pod.yaml", reader("a"))
	m.StartAgent()
	waitForReason(m, "a-edge", `configmap "settings" not found`)
	m.Write("manifests/settings.yaml", fmt.Sprintf(settings, "hello"))
	waitForReason(m, "a-edge", `secret "wifi" not found`)
	m.Write("manifests/wifi.yaml", fmt.Sprintf(wifi, "horse-battery-1"))
	before := m.WaitReady("a-edge")["a-edge"]

	check := func(greeting, password string) {
		t.Helper()
		m.Await("the volumes to show "+greeting+" and "+password, func() bool {
			return file(m, "a-edge", "/settings/greeting") == greeting && file(m, "a-edge", "/all/hello") == greeting &&
				file(m, "a-edge", "/all/password") == password
		})
	}
	check("hello", "horse-battery-1")
	if env := m.Islet("exec", "a-edge", "--", "/podtool", "env"); !strings.Contains(env, "GREETING=hello") ||
		!strings.Contains(env, "WIFI_password=horse-battery-1") {
		t.Errorf("environment: %s", env)
	}
	if out := m.Islet("objects"); !strings.Contains(out, "configmap/settings") || !strings.Contains(out, "secret/wifi") ||
		!strings.Contains(out, "default/a-edge") || strings.Contains(out, "horse") {
		t.Errorf("islet objects: %s", out)
	}
	if out := m.Islet("describe", "secret", "wifi"); !strings.Contains(out, "manifests/wifi.yaml") ||
		!strings.Contains(out, "15 bytes") || strings.Contains(out, "horse") {
		t.Errorf("islet describe secret: %s", out)
	}

	// Volumes are updated in place. An invalid document does not affect the other documents.
	m.Write("manifests/settings.yaml", fmt.Sprintf(settings, "hi"))
	check("hi", "horse-battery-1")
	m.Write("manifests/wifi.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: wifi}\ndata: {password: '!'}\n")
	m.Write("manifests/settings.yaml", fmt.Sprintf(settings, "servus"))
	check("servus", "horse-battery-1")
	if out, _ := m.Try("status"); !strings.Contains(out, "data[password]") {
		t.Errorf("status does not name the bad Secret: %s", out)
	}
	m.Write("manifests/wifi.yaml", fmt.Sprintf(wifi, "horse-battery-2"))
	check("servus", "horse-battery-2")
	requireSame(t, before, m.Pods()["a-edge"])

	m.Kill()
	m.Write("manifests/settings.yaml", fmt.Sprintf(settings, "grüezi"))
	m.StartAgent()
	check("grüezi", "horse-battery-2")
	requireSame(t, before, m.WaitReady("a-edge")["a-edge"])

	// A running pod keeps the content of a deleted object, also after a reboot. A new pod does not get the deleted object.
	m.Remove("manifests/wifi.yaml")
	m.Await("the Secret to be removed", func() bool { return strings.Contains(m.Islet("objects"), "file (removed)") })
	m.PowerOff()
	m.Boot()
	m.StartAgent()
	m.WaitReady("a-edge")
	check("grüezi", "horse-battery-2")
	m.Write("manifests/b.yaml", reader("b"))
	waitForReason(m, "b-edge", `secret "wifi" not found`)
	if env := m.Islet("exec", "a-edge", "--", "/podtool", "env"); !strings.Contains(env, "GREETING=grüezi") {
		t.Errorf("environment after the reboot: %s", env)
	}
	nowhere(t, m.Disk, "horse-battery")
	m.Remove("manifests/pod.yaml")
	m.Remove("manifests/b.yaml")
	m.Remove("manifests/settings.yaml")
	m.WaitReady()
	m.Await("all objects to be gone", func() bool { return strings.TrimSpace(m.Islet("objects", "--no-headers")) == "" })
}

// nowhere checks that no file of the agent contains a Secret in plain text.
func nowhere(t *testing.T, disk, secret string) {
	t.Helper()
	looked := 0
	for _, dir := range []string{"state", "kubelet", "logs"} {
		err := filepath.WalkDir(filepath.Join(disk, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil // the file was deleted meanwhile
			}
			data, err := os.ReadFile(path)
			if err == nil {
				looked++
			}
			if bytes.Contains(data, []byte(secret)) {
				t.Errorf("%s contains the Secret in plain text", path)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	if looked < 3 {
		t.Errorf("only %d files", looked)
	}
}

// TestAppliedBundle checks that islet apply creates a pod with its ConfigMap and Secret. islet delete must delete all three.
func TestAppliedBundle(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	m.StartAgent()
	m.Write("bundle.yaml", fmt.Sprintf(settings, "hello")+"---\n"+fmt.Sprintf(wifi, "horse")+"---\n"+reader("a"))
	bundle := m.Disk + "/bundle.yaml"
	if out := m.Islet("apply", "--dry-run", "-f", bundle); !strings.Contains(out, "configmap/settings created (dry run)") ||
		strings.Contains(m.Islet("objects", "-o", "name"), "settings") {
		t.Errorf("dry run: %s", out)
	}
	if out := m.Islet("apply", "-f", bundle); out != "configmap/settings created\nsecret/wifi created\npod/a created\n" {
		t.Errorf("apply: %s", out)
	}
	before := m.WaitReady("a")["a"]
	// The pod does not use a ConfigMap of another source.
	m.Write("manifests/settings.yaml", fmt.Sprintf(settings, "foreign"))
	m.Await("the other source's ConfigMap", func() bool { return strings.Count(m.Islet("objects", "-o", "name"), "settings") == 2 })
	if got := file(m, "a", "/settings/greeting"); got != "hello" {
		t.Errorf("greeting is %q", got)
	}
	m.Write("more.yaml", fmt.Sprintf(settings, "hi"))
	if out := m.Islet("apply", "-f", m.Disk+"/more.yaml"); out != "configmap/settings configured\n" {
		t.Errorf("apply: %s", out)
	}
	m.Await("the change to be seen", func() bool { return file(m, "a", "/settings/greeting") == "hi" })
	requireSame(t, before, m.Pods()["a"])
	if out, code := m.Try("delete", "configmap", "nothing"); code != 4 {
		t.Errorf("delete of a missing object: %d %s", code, out)
	}
	if out := m.Islet("delete", "-f", bundle); !strings.Contains(out, "secret/wifi deleted") {
		t.Errorf("delete: %s", out)
	}
	m.WaitReady()
	m.Await("only the other source's to be left", func() bool {
		return m.Islet("objects", "--no-headers", "-o",
			"name") == "configmap/settings\n"
	})
	m.Write("deployment.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 2}\n")
	if out, code := m.Try("apply", "-f", m.Disk+"/deployment.yaml"); code == 0 || !strings.Contains(out, "kind: Pod, metadata: {name: web}") {
		t.Errorf("a Deployment: %d %s", code, out)
	}
}

// TestHostileObjects checks that objects that exceed the limits are rejected. Other pods must not be affected.
func TestHostileObjects(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	m.Write("manifests/a.yaml", manifest("a", "", "sleep"))
	m.StartAgent()
	before := m.WaitReady("a-edge")["a-edge"]
	var keys strings.Builder
	for i := range 300_000 {
		fmt.Fprintf(&keys, `"%d":"",`, i)
	}
	for name, text := range map[string]string{
		"keys.json":  `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"keys"},"data":{` + strings.TrimSuffix(keys.String(), ",") + `}}`,
		"huge.json":  `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"huge"},"data":{"a":"` + strings.Repeat("x", 2<<20) + `"}}`,
		"larger.yml": "apiVersion: v1\nkind: Secret\nmetadata: {name: larger}\nstringData: {a: " + strings.Repeat("y", 5<<20) + "}\n",
		"dots.yaml":  "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: ../../kubelet}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n",
		"out.yaml":   "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: out, namespace: ../..}\ndata: {../../../escape: x}\n",
	} {
		m.Write("manifests/"+name, text)
	}
	m.Write("manifests/b.yaml", manifest("b", "", "sleep"))
	requireSame(t, before, m.WaitReady("a-edge", "b-edge")["a-edge"])
	m.Await("all problems to be reported", func() bool {
		out, _ := m.Try("status")
		for _, name := range []string{"keys.json", "huge.json", "larger.yml", "dots.yaml", "out.yaml"} {
			if !strings.Contains(out, name) {
				return false
			}
		}
		return true
	})
	if out, _ := m.Try("objects", "-A", "-o", "name"); strings.TrimSpace(out) != "" {
		t.Errorf("objects were accepted: %s", out)
	}
	m.Write("x.json", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"..":"y"}}`)
	if out, code := m.Try("apply", "-f", m.Disk+"/x.json"); code == 0 || !strings.Contains(out, "data[..]") {
		t.Errorf("applied: %d %s", code, out)
	}
}

const dataClaim = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 16Mi}}}
`

func writer(name string) string {
	return manifest(name, `    volumeMounts:
    - {name: data, mountPath: /data}
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: data}}
`, "sleep")
}

// TestClaimOfManifest checks that a PersistentVolumeClaim in a manifest is a directory on the node. The data must survive the deletion of
// the pod and the manifest, a SIGKILL of the agent and a reboot. Only islet delete with --delete-data deletes the data.
func TestClaimOfManifest(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	m.Write("manifests/pod.yaml", writer("a"))
	m.StartAgent()
	waitForReason(m, "a-edge", `persistentvolumeclaim "data" not found`)
	m.Write("manifests/data.yaml", dataClaim)
	before := m.WaitReady("a-edge")["a-edge"]
	m.Islet("exec", "a-edge", "--", "/podtool", "write", "/data/kept", "precious")
	if out := m.Islet("describe", "pvc", "data"); !strings.Contains(out, "/state/claims/default/data") || !strings.Contains(out, "16.0MiB") {
		t.Errorf("islet describe pvc: %s", out)
	}
	m.Kill()
	m.StartAgent()
	requireSame(t, before, m.WaitReady("a-edge")["a-edge"])
	m.PowerOff()
	m.Boot()
	m.StartAgent()
	m.WaitReady("a-edge")
	m.Await("the data after the reboot", func() bool { return file(m, "a-edge", "/data/kept") == "precious" })

	if out, code := m.Try("delete", "pvc", "data", "--delete-data"); code == 0 || !strings.Contains(out, "in use") {
		t.Errorf("a claim of the manifest directory was deleted: %d %s", code, out)
	}
	m.Remove("manifests/pod.yaml")
	m.Remove("manifests/data.yaml")
	m.WaitReady()
	m.Await("the claim to be unused", func() bool { return strings.Contains(m.Islet("objects"), "none (unused)") })
	if out, code := m.Try("delete", "pvc", "data"); code == 0 || !strings.Contains(out, "--delete-data deletes it permanently") {
		t.Errorf("data was deleted without --delete-data: %d %s", code, out)
	}

	// A new claim with the same name gets the data again.
	m.Write("bundle.yaml", dataClaim+"---\n"+writer("b"))
	m.Islet("apply", "-f", m.Disk+"/bundle.yaml")
	m.WaitReady("b")
	if got := file(m, "b", "/data/kept"); got != "precious" {
		t.Errorf("the data is %q", got)
	}
	if out, code := m.Try("delete", "pvc", "data", "--delete-data"); code == 0 || !strings.Contains(out, "in use") {
		t.Errorf("the data of a running pod was deleted: %d %s", code, out)
	}
	if got := file(m, "b", "/data/kept"); got != "precious" {
		t.Errorf("after the rejected deletion the data is %q", got)
	}
	m.Islet("delete", "-f", m.Disk+"/bundle.yaml")
	m.WaitReady()
	m.Await("the data to be removed", func() bool { _, code := m.Try("delete", "pvc", "data", "--delete-data"); return code == 0 })
	if out, _ := m.Try("objects", "-o", "name"); strings.TrimSpace(out) != "" {
		t.Errorf("objects are left: %s", out)
	}
	if _, err := os.Stat(filepath.Join(m.Disk, "state/claims/default")); !os.IsNotExist(err) {
		t.Errorf("left on the disk: %v", err)
	}
}
