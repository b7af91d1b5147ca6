package node

import (
	"os"
	"strings"
	"testing"
)

// A veto is a node with a pod that is not ready during trials of versions.
type veto struct {
	*updates
	trials int // number of trials that have ended
}

// newVeto starts the node with this pod and two ordinary pods.
func newVeto(t *testing.T) *veto {
	v := &veto{updates: bootUpdates(t)}
	v.m.Write("flags/ready", "")
	v.m.Write("manifests/evil.yaml", manifest("evil",
		"    readinessProbe: {exec: {command: [/podtool, cat, /flags/ready]}, periodSeconds: 1, failureThreshold: 1}\n"+
			"    volumeMounts: [{name: flags, mountPath: /flags}]\n  volumes: [{name: flags, hostPath: {path: "+v.m.Disk+"/flags}}]\n",
		"count", "100ms"))
	v.m.Write("edge.yaml", "apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\ncniConfDir: "+v.m.Disk+
		"/cni\nconfiguration: {healthyFor: 5s, deadline: 25s}\nupdate: {keys: ["+v.Public+"]}\n")
	v.m.Write("manifests/one.yaml", manifest("one", "", "count", "100ms"))
	v.m.Write("manifests/two.yaml",
		manifest("two", "    readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1, failureThreshold: 1}\n", "serve", ":8080"))
	v.m.StartAgent()
	v.ids = containers(v.m.WaitReady("one-edge", "two-edge", "evil-edge"))
	return v
}

// during makes the pod unready when a trial begins, and ready when the trial ends. It returns the reason why the trial failed.
func (v *veto) during() (why string) {
	v.Helper()
	v.m.Await("a trial", func() bool {
		b, err := os.ReadFile(v.m.Disk + "/state/configuration.json")
		return err == nil && strings.Contains(string(b), `"trial":{`)
	})
	v.m.Remove("flags/ready")
	v.m.Await("the end of the trial", func() bool {
		s, ok := show(v.m)
		if !ok || len(s.History) <= v.trials || s.Trying && s.History[v.trials].Why == "" {
			return false
		}
		why = s.History[v.trials].Why
		return true
	})
	v.trials++
	v.m.Write("flags/ready", "")
	return why
}

// TestUpdateVeto checks the message of a trial that fails because a pod becomes unready. The message must name the pod. Such a pod must
// prevent only the first trial of a version. With --despite-pods it must prevent no trial.
func TestUpdateVeto(t *testing.T) {
	t.Parallel()
	v := newVeto(t)
	v.m.Islet("update", "--no-wait", v.archive("9.1.0", v.BuildVersion("9.1.0")))
	if why := v.during(); !strings.Contains(why, "1 pods are not ready that were: default/evil-edge") {
		t.Errorf("the first trial: %q", why)
	}
	if why := v.during(); why != "" {
		t.Errorf("the second trial: %q", why)
	}
	v.as("9.1.0")
	v.m.Islet("update", "--no-wait", "--despite-pods", v.archive("9.2.0", v.BuildVersion("9.2.0")))
	if why := v.during(); why != "" {
		t.Errorf("the trial with --despite-pods: %q", why)
	}
	v.as("9.2.0")
}
