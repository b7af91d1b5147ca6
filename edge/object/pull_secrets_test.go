package object

import (
	"encoding/base64"
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/keyring"
)

func dockerConfig(name, content string) *v1.Secret {
	return &v1.Secret{ObjectMeta: meta("default", name), Type: v1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(content)}}
}

func auth(user string) string {
	return fmt.Sprintf(`{"auth":%q}`, base64.StdEncoding.EncodeToString([]byte(user+":pw")))
}

// TestSecretsOfNoUse checks that an image pull secret without data or with another type is an error.
func TestSecretsOfNoUse(t *testing.T) {
	for name, s := range map[string]*v1.Secret{
		"other type": {Type: v1.SecretTypeOpaque, Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(`{}`)}},
		"no data":    {Type: v1.SecretTypeDockerConfigJson},
		"other data": {Type: v1.SecretTypeDockercfg, Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(`{}`)}},
	} {
		var r keyring.Ring
		if err := r.AddSecret(s); err == nil || len(r) > 0 {
			t.Error(name, err, r)
		}
	}
	var r keyring.Ring
	old := &v1.Secret{ObjectMeta: meta("default", "old"), Type: v1.SecretTypeDockercfg,
		Data: map[string][]byte{v1.DockerConfigKey: []byte(`{"a.example":` + auth("ann") + `}`)}}
	if err := r.AddSecret(old); err != nil || len(r) != 1 || r[0].From.Name != "old" || r[0].From.Kind != keyring.Secret {
		t.Error(err, r)
	}
}

// TestPullSecrets checks that an image is pulled with the Secrets that were read before the link was lost.
func TestPullSecrets(t *testing.T) {
	inWorld(t, Watch, func(w *world) {
		w.server.Put(dockerConfig("pull", `{"auths":{"registry.example":`+auth("ann")+`}}`))
		p := podOf("a")
		p.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "none"}, {Name: "pull"}}
		users := func(p *v1.Pod, image string) (all []string) {
			creds, missing := w.cache.PullSecrets(w.Context(), p, image)
			if want := len(p.Spec.ImagePullSecrets) / 2; len(missing) != want {
				w.Error(missing)
			}
			for _, c := range creds {
				all = append(all, c.Auth.Username)
				if c.From.Namespace != "default" || c.From.Name != "pull" {
					w.Error(c.From)
				}
			}
			return all
		}
		if got := users(p, "registry.example/app"); fmt.Sprint(got) != "[ann]" { // the pod is not prepared yet
			w.Error(got)
		}
		w.prepare(p)
		w.server.Disconnect()
		w.server.CloseConnections()
		w.restart()
		began := time.Now()
		if got := users(p, "registry.example/app"); fmt.Sprint(got) != "[ann]" || time.Since(began) != 0 {
			w.Error(got)
		}
		if got := users(p, "docker.io/library/app"); len(got) != 0 {
			w.Error(got)
		}
		if got := users(podOf("b"), "registry.example/app"); len(got) != 0 {
			w.Error(got)
		}
	})
}
