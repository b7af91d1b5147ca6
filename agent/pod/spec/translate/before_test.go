package translate

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// silentServer is the error about an unresponsive API server.
type silentServer struct{ error }

func (silentServer) Unreached() bool { return true }

// lostObjects is an object source that always returns the error err.
type lostObjects struct {
	objects
	err error
}

func (l lostObjects) ConfigMap(*v1.Pod, string) (*v1.ConfigMap, error) { return nil, l.err }
func (l lostObjects) Secret(*v1.Pod, string) (*v1.Secret, error)       { return nil, l.err }
func (l lostObjects) Services(*v1.Pod) ([]v1.Service, error)           { return nil, l.err }

// TestEnvironmentBefore checks a container that restarts while the API server does not respond. The variables of unreadable objects come
// from the container's last attempt, and all other variables are computed again. The first attempt fails, because it has no earlier
// variables. Each attempt fails if the API server responds with an error, or if an object does not exist.
func TestEnvironmentBefore(t *testing.T) {
	from := func(path string) *v1.EnvVarSource {
		return &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: path}}
	}
	ctr := &v1.Container{Name: "c", EnvFrom: []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "cm"}}}},
		Env: []v1.EnvVar{
			{Name: "IP", ValueFrom: from("status.podIP")},
			{Name: "WORD", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{Key: "p"}}},
			{Name: "URL", Value: "http://$(IP)/$(WORD)/$(KUBERNETES_PORT)"},
		}}
	before := []*api.KeyValue{{Key: "k", Value: []byte("v")}, {Key: "IP", Value: []byte("10.9.9.9")}, {Key: "WORD", Value: []byte("hush")},
		{Key: "URL", Value: []byte("stale")}, {Key: "KUBERNETES_PORT", Value: []byte("443")}, {Key: "PATH", Value: []byte("/bin")}}
	asked := 0
	last := func() []*api.KeyValue { asked++; return before }
	unread := fmt.Errorf("read it: %w", silentServer{errors.New("no link")})

	cfg, _, err := Container(aPod(), ctr, aNode(), Attempt{PreviousEnv: last}, lostObjects{err: unread}, NoFiles{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, e := range cfg.Envs {
		got[e.Key] += string(e.Value)
	}
	if want := map[string]string{"k": "v", "IP": "10.0.0.7", "WORD": "hush", "URL": "http://10.0.0.7/hush/443", "KUBERNETES_PORT": "443", "PATH": "/bin"}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("have %v\nwant %v", got, want)
	}
	if _, _, err := Container(aPod(), ctr, aNode(), Attempt{PreviousEnv: last}, objects{}, NoFiles{}); err == nil || asked != 1 { // the Secret has another name
		t.Errorf("an object that does not exist: %v, %d calls", err, asked)
	}
	if _, _, err := Container(aPod(), ctr, aNode(), Attempt{PreviousEnv: last}, lostObjects{err: errors.New("forbidden")}, NoFiles{}); err == nil || asked != 1 {
		t.Errorf("an error of the API server: %v, %d calls", err, asked)
	}
	none := func() []*api.KeyValue { return nil }
	for _, a := range []Attempt{{}, {PreviousEnv: none}} {
		if _, _, err := Container(aPod(), ctr, aNode(), a, lostObjects{err: unread}, NoFiles{}); err == nil || !strings.Contains(err.Error(), "no link") {
			t.Errorf("a first attempt: %v", err)
		}
	}
}
