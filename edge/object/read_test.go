package object

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/keys"
)

func TestServices(t *testing.T) {
	inWorld(t, Watch, func(w *world) {
		w.server.Put(service("app", "db", "10.96.0.7"))
		w.server.Put(service("app", "headless", "None"))
		w.server.Put(service("other", "db", "10.96.0.8"))
		names := func(p *v1.Pod) (all []string) {
			s, err := w.cache.Services(p)
			if err != nil {
				w.Error(err)
			}
			for _, s := range s {
				all = append(all, s.Namespace+"/"+s.Name)
			}
			return all
		}
		linked, apart, own := podOf("linked"), podOf("apart"), podOf("own")
		linked.Namespace, apart.Namespace, own.Namespace = "app", "lonely", "app"
		apart.Spec.EnableServiceLinks = ptr(false)
		own.Annotations = map[string]string{keys.ConfigSource: "file"}
		w.server.Disconnect()
		if took := w.prepare(own); took != 0 {
			w.Error("a static pod has waited for", took)
		}
		if got := names(own); len(got) != 0 {
			w.Error(got)
		}
		w.prepare(linked)
		if _, err := w.cache.Services(linked); !errors.As(err, new(unreachedError)) {
			w.Error("started without the services, or with another error:", err)
		}
		w.server.Reconnect()
		w.cache.Retry()
		time.Sleep(5 * time.Second)
		w.prepare(apart)
		if got := names(linked); len(got) != 2 {
			w.Error(got)
		}
		if got := names(apart); len(got) != 1 || got[0] != "default/kubernetes" {
			w.Error(got)
		}
		w.server.Put(service("app", "cache", "10.96.0.9"))
		w.server.Remove(service("app", "db", ""))
		synctest.Wait()
		if got := fmt.Sprint(names(linked)); !strings.Contains(got, "app/cache") || strings.Contains(got, "app/db") {
			w.Error(got)
		}
		w.server.Disconnect()
		w.server.CloseConnections()
		w.restart()
		if got := names(linked); len(got) != 2 {
			w.Error(got)
		}
	})
}

func TestReferences(t *testing.T) {
	ref := func(name string) v1.LocalObjectReference { return v1.LocalObjectReference{Name: name} }
	p := podOf("a", "env-from")
	p.Spec.ImagePullSecrets = []v1.LocalObjectReference{ref("pull"), ref("")}
	p.Spec.InitContainers = []v1.Container{{
		EnvFrom: []v1.EnvFromSource{{SecretRef: &v1.SecretEnvSource{LocalObjectReference: ref("init-from")}}},
		Env: []v1.EnvVar{{Name: "A"}, {ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: ref("key")}}},
			{ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: ref("secret-key")}}}},
	}}
	p.Spec.Volumes = []v1.Volume{
		{VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: ref("volume")}}},
		{VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "secret-volume"}}},
		{VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		{VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: ref("projected")}},
			{Secret: &v1.SecretProjection{LocalObjectReference: ref("secret-projected")}},
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Audience: "vault", ExpirationSeconds: ptr(int64(600))}},
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{}},
		}}}},
	}
	var got []string
	r := referencesOf(p)
	for k := range r.objects {
		got = append(got, k.Kind+"/"+k.Name)
	}
	for _, want := range []string{"ConfigMap/env-from", "Secret/pull", "Secret/init-from", "ConfigMap/key", "Secret/secret-key",
		"ConfigMap/volume", "Secret/secret-volume",
		"ConfigMap/projected", "Secret/secret-projected", "Service/"} {
		if !strings.Contains(" "+strings.Join(got, " ")+" ", " "+want+" ") {
			t.Error("missing", want)
		}
	}
	if len(got) != 10 || len(r.tokens) != 2 {
		t.Error(got, r.tokens)
	}
	for k := range r.tokens {
		if k.UID != types.UID("a") || k.Audience == "" && k.Seconds != tokenSeconds {
			t.Error(k)
		}
	}
}
