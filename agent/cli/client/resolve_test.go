package client

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/podtest"
)

func TestChoose(t *testing.T) {
	var pods []v1.Pod
	for _, n := range [][2]string{{"default", "web-pi"}, {"default", "web-pi-2"}, {"default", "db-pi"}, {"kube-system", "dns-pi"}, {"other", "db-pi"},
		{"po", "own"}} {
		pods = append(pods, *podtest.New(n[1], podtest.Namespace(n[0])))
	}
	for _, c := range []struct{ namespace, name, want string }{
		{"", "web-pi", "default/web-pi"},
		{"", "pod/web-pi-2", "default/web-pi-2"},
		{"", "po/web-pi-2", "default/web-pi-2"},
		{"", "pods/other/db-pi", "other/db-pi"},
		{"", "po/own", "po/own"},
		{"po", "pod/own", "po/own"},
		{"", "pod/", "a pod's name is empty"},
		{"", "d", "default/db-pi"},
		{"", "dns", "kube-system/dns-pi"},
		{"other", "db", "other/db-pi"},
		{"", "other/d", "other/db-pi"},
		{"", "we", `"we" is ambiguous: it matches default/web-pi, default/web-pi-2`},
		{"", "x", `pod "x" not found`},
		{"other", "web-pi", `pod "other/web-pi" not found`},
		{"other", "default/db", "pod default/db is not in namespace other"},
		{"", "", "a pod's name is empty"},
	} {
		pod, err := ChoosePod(pods, c.namespace, c.name)
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = pod.Namespace + "/" + pod.Name
		}
		if got != c.want {
			t.Errorf("%s %s: %s, want %s", c.namespace, c.name, got, c.want)
		}
	}
}
