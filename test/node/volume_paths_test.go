package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// TestVolumePaths checks that a pod runs with paths that a kubelet accepts: unusual spellings of the files in volumes, a subPath through an
// absolute symlink of a hostPath, and a relative path of the termination log. The container statuses are sorted by name. A container that
// fails after a long line has the end of this line as its termination message.
func TestVolumePaths(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	app := m.Disk + "/app"
	m.Write("app/releases/42/version", "42\n")
	m.Write("app/releases/42/long", strings.Repeat("x", 12000)+"y\n")
	m.Write("other/version", "other\n")
	for link, to := range map[string]string{"current": app + "/releases/42", "other": m.Disk + "/other"} {
		if err := os.Symlink(to, filepath.Join(app, link)); err != nil {
			t.Fatal(err)
		}
	}
	pod := func(name, sub string) string {
		return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  terminationGracePeriodSeconds: 1
  restartPolicy: Never
  containers:
  - name: web
    image: %[2]s
    imagePullPolicy: Never
    args: [sleep]
    volumeMounts: [{name: app, mountPath: /app, subPath: %[4]s}, {name: files, mountPath: /files}]
  - name: fails
    image: %[2]s
    imagePullPolicy: Never
    args: [cat, /app/long, /none]
    terminationMessagePath: dev/log
    terminationMessagePolicy: FallbackToLogsOnError
    volumeMounts: [{name: app, mountPath: /app, subPath: %[4]s}]
  - name: writes
    image: %[2]s
    imagePullPolicy: Never
    args: [write, /dev/log, last words]
    terminationMessagePath: dev/log
  volumes:
  - {name: app, hostPath: {path: %[3]s}}
  - name: files
    projected:
      sources:
      - configMap: {name: settings, items: [{key: greeting, path: ./hello}, {key: other, path: deep//other/}]}
      - downwardAPI: {items: [{path: deep/./name, fieldRef: {fieldPath: metadata.name}}]}
`, name, machine.Image, app, sub)
	}
	m.Write("manifests/settings.yaml", fmt.Sprintf(settings, "hi"))
	m.Write("manifests/good.yaml", pod("good", "current"))
	m.Write("manifests/bad.yaml", pod("bad", "other"))
	m.StartAgent()
	m.WaitPods("the containers to run or to end", func(pods map[string]machine.Pod) bool {
		c := pods["good-edge"].Status.ContainerStatuses
		return len(c) == 3 && c[0].State.Terminated != nil && c[1].State.Running != nil && c[2].State.Terminated != nil
	})
	for path, want := range map[string]string{
		"/app/version": "42", "/files/hello": "hi", "/files/deep/other": "x", "/files/deep/name": "good-edge",
	} {
		out, _ := m.Try("exec", "good-edge", "-c", "web", "--", "/podtool", "cat", path)
		if got := strings.TrimSuffix(out, "\n"); got != want {
			t.Errorf("%s has %q instead of %q", path, got, want)
		}
	}
	c := m.Pods()["good-edge"].Status.ContainerStatuses
	if got := c[0].State.Terminated.Message; len(got) < 2000 || !strings.HasPrefix(got, "xxx") || !strings.Contains(got, "xy\n") {
		t.Errorf("the message of the container that fails has %d bytes: %.60q", len(got), got)
	}
	if got := c[2].State.Terminated.Message; got != "last words" {
		t.Errorf("the message is %q", got)
	}
	waitForReason(m, "bad-edge", "a symlink leads out of the volume")
}
