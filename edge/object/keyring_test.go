package object

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

func dockerConfig(name, content string) *v1.Secret {
	return &v1.Secret{ObjectMeta: meta("default", name), Type: v1.SecretTypeDockerConfigJson, Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(content)}}
}

func auth(user string) string {
	return fmt.Sprintf(`{"auth":%q}`, base64.StdEncoding.EncodeToString([]byte(user+":pw")))
}

func TestLookup(t *testing.T) {
	for _, tt := range []struct {
		place, image string
		found        bool
	}{
		{"registry.example", "registry.example/app", true},
		{"https://registry.example", "registry.example/app", true},
		{"http://registry.example/", "registry.example/app", true},
		{"https://registry.example/v1/", "registry.example/app", true},
		{"registry.example/v2/", "registry.example/app", true},
		{"registry.example/team", "registry.example/team/app", true},
		{"registry.example/team", "registry.example/other/app", false},
		{"registry.example/te", "registry.example/team/app", true}, // as the kubelet has it
		{"registry.example:5000", "registry.example:5000/app", true},
		{"registry.example:5000", "registry.example/app", false},
		{"registry.example", "registry.example:5000/app", false},
		{"*.example", "registry.example/app", true},
		{"*.example", "a.registry.example/app", false},
		{"*.*.example", "a.registry.example/app", true},
		{"reg*.example/team", "registry.example/team/app", true},
		{"*", "registry.example/app", false},
		{"[.example", "registry.example/app", false},
		{"[::1]:5000", "[::1]:5000/app", true},
		{"https://index.docker.io/v1/", "docker.io/library/nginx", true},
		{"docker.io", "docker.io/library/nginx", true},
		{"index.docker.io", "registry.example/library/nginx", false},
		{"other.example", "docker.io/library/nginx", false},
		{"https://%zz", "registry.example/app", false},
		{"", "registry.example/app", false},
	} {
		var c credentials
		if err := c.add(dockerConfig("s", fmt.Sprintf(`{"auths":{%q:%s}}`, tt.place, auth("ann")))); err != nil {
			t.Error(err)
		}
		if got, _ := c.lookup(tt.image); (len(got) == 1) != tt.found {
			t.Errorf("%q for %q: %v", tt.place, tt.image, got)
		}
	}
}

func TestAdd(t *testing.T) {
	var c credentials
	for _, s := range []*v1.Secret{
		dockerConfig("json", `{"auths":{"a.example":`+auth("json")+`,"a.example/team":{"username":"plain","password":"pw"}},"credHelpers":{"x":"y"}}`),
		{Type: v1.SecretTypeDockercfg, Data: map[string][]byte{v1.DockerConfigKey: []byte(`{"a.example/team":` + strings.ReplaceAll(auth("flat"), "=", "") + `}`)}},
	} {
		if err := c.add(s); err != nil {
			t.Error(err)
		}
	}
	var users []string
	auths, _ := c.lookup("a.example/team/app")
	for _, a := range auths {
		if a.Password != "pw" {
			t.Error(a)
		}
		users = append(users, a.Username)
	}
	if got := fmt.Sprint(users); got != "[plain flat json]" {
		t.Error(got)
	}
	const hush = "s3cret"
	for name, s := range map[string]*v1.Secret{
		"other type": {Type: v1.SecretTypeOpaque, Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(`{}`)}},
		"no data":    {Type: v1.SecretTypeDockerConfigJson},
		"no JSON":    dockerConfig("s", hush),
		"no base64":  dockerConfig("s", `{"auths":{"b.example":{"auth":"`+hush+`!"},"c.example":`+auth("ok")+`}}`),
		"no colon":   dockerConfig("s", `{"auths":{"b.example":{"auth":"`+base64.StdEncoding.EncodeToString([]byte(hush))+`"}}}`),
		"wrong type": dockerConfig("s", `{"auths":{"b.example":"`+hush+`"}}`),
	} {
		if err := c.add(s); err == nil || strings.Contains(err.Error(), hush) {
			t.Error(name, err)
		}
	}
	if got, _ := c.lookup("c.example/app"); len(got) != 1 {
		t.Error("a good entry went with a bad one:", got)
	}
	if got, _ := c.lookup("b.example/app"); len(got) != 0 {
		t.Error(got)
	}
}

func FuzzDockerConfig(f *testing.F) {
	f.Add(`{"auths":{"https://*.example/v1/":`+auth("ann")+`}}`, "a.example/app")
	f.Add(`{"auths":{"[":{"auth":"Og=="}}}`, "")
	f.Fuzz(func(t *testing.T, config, image string) {
		var c credentials
		_ = c.add(dockerConfig("s", config))
		_ = c.add(&v1.Secret{Type: v1.SecretTypeDockercfg, Data: map[string][]byte{v1.DockerConfigKey: []byte(config)}})
		auths, from := c.lookup(image)
		if len(auths) != len(from) {
			t.Error(auths, from)
		}
		for _, a := range auths {
			if a == nil {
				t.Error("nil")
			}
		}
	})
}

// An image is pulled with the secrets that were known before the link was lost.
func TestKeyring(t *testing.T) {
	inWorld(t, Watch, func(w *world) {
		w.server.Put(dockerConfig("pull", `{"auths":{"registry.example":`+auth("ann")+`}}`))
		p := podOf("a")
		p.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "none"}, {Name: "pull"}}
		users := func(p *v1.Pod, image string) (all []string) {
			auths, from := w.cache.Keyring(w.Context(), p, image)
			for i, a := range auths {
				if all = append(all, a.Username); from[i].Namespace != "default" || from[i].Name != "pull" {
					w.Error(from[i])
				}
			}
			return all
		}
		if got := users(p, "registry.example/app:1"); fmt.Sprint(got) != "[ann]" { // before anything else
			w.Error(got)
		}
		w.prepare(p)
		w.server.Down()
		w.server.Cut()
		w.restart()
		began := time.Now()
		if got := users(p, "registry.example/app@sha256:"+strings.Repeat("0", 64)); fmt.Sprint(got) != "[ann]" || time.Since(began) != 0 {
			w.Error(got)
		}
		if got := users(p, "app"); len(got) != 0 {
			w.Error(got)
		}
		if got := users(podOf("b"), "registry.example/app"); len(got) != 0 {
			w.Error(got)
		}
	})
}
