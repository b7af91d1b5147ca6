package migrate

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestProxy checks that islet gets the proxy of each former program, that the report has no login of a proxy, and that the way back removes
// the variables.
func TestProxy(t *testing.T) {
	const dropIn = "[Service]\nEnvironment=\"HTTPS_PROXY=http://proxy.example:3128\" 'NO_PROXY=10.0.0.0/8,.lan'"
	const usual = "HTTPS_PROXY=http://proxy.example:3128 NO_PROXY=10.0.0.0/8,.lan"
	for name, c := range map[string]struct {
		tree  string
		files map[string]string
		want  string // the variables, and the file
		note  string // key of a difference, or part of its text
	}{
		"k3s": {tree: "k3s-agent", files: map[string]string{"etc/systemd/system/k3s-agent.service.d/http-proxy.conf": dropIn}, want: usual + " >>/etc/default/islet"},
		"k3s' file": {tree: "k3s-agent", files: map[string]string{"etc/systemd/system/k3s-agent.service.env": "K3S_URL=https://192.0.2.1:6443\n" +
			"CONTAINERD_HTTPS_PROXY='http://proxy.example:3128'\nCONTAINERD_NO_PROXY=.lan\n"},
			want: "HTTPS_PROXY=http://proxy.example:3128 NO_PROXY=.lan,192.0.2.1 >>/etc/default/islet"},
		"containerd": {tree: "kubeadm", files: map[string]string{"etc/systemd/system/containerd.service.d/http-proxy.conf": dropIn,
			"etc/kubernetes/kubelet.conf": "clusters: [{cluster: {server: 'https://[2001:db8::1]:6443'}}, {}]\ncontexts: []"},
			want: usual + ",2001:db8::1 >>/etc/default/kubelet"},
		"containerd, and the server": {tree: "kubeadm", files: map[string]string{"etc/systemd/system/containerd.service.d/http-proxy.conf": dropIn,
			"etc/kubernetes/kubelet.conf": "clusters: [{cluster: {server: 'https://api.example:6443'}}]"},
			want: usual + ",api.example >>/etc/default/kubelet"},
		"kubelet and containerd": {tree: "kubeadm", files: map[string]string{
			"etc/systemd/system/kubelet.service.d/http-proxy.conf":    "[Service]\nEnvironment=HTTPS_PROXY=http://a:1 NO_PROXY=api.example,.lan",
			"etc/systemd/system/containerd.service.d/http-proxy.conf": "[Service]\nEnvironment=HTTPS_PROXY=http://b:1 NO_PROXY=registry.example",
			"etc/kubernetes/kubelet.conf":                             "clusters: [{cluster: {server: 'https://api.example:6443'}}]"},
			want: "HTTPS_PROXY=http://a:1 NO_PROXY=api.example,.lan,registry.example >>/etc/default/kubelet", note: "HTTPS_PROXY"},
		"a login, and the server": {tree: "kubeadm", files: map[string]string{
			"etc/systemd/system/containerd.service.d/a.conf": "[Service]\nEnvironment=HTTPS_PROXY=http://board:secret@proxy.example",
			"etc/kubernetes/kubelet.conf":                    "clusters: [{cluster: {server: 'https://api.example:6443'}}]"},
			want: "NO_PROXY=api.example >>/etc/default/kubelet", note: "HTTPS_PROXY"},
		"hosts by hand, and the server": {tree: "kubeadm", files: map[string]string{
			"etc/systemd/system/containerd.service.d/a.conf": "[Service]\nEnvironment=HTTPS_PROXY=http://a:1 NO_PROXY=*.lan",
			"etc/kubernetes/kubelet.conf":                    "clusters: [{cluster: {server: 'https://api.example:6443'}}]"},
			want: "HTTPS_PROXY=http://a:1 >>/etc/default/kubelet", note: "write api.example into it too"},
		"more hosts by hand": {tree: "kubeadm", files: map[string]string{
			"etc/systemd/system/kubelet.service.d/a.conf":    "[Service]\nEnvironment=HTTPS_PROXY=http://a:1 NO_PROXY=.lan",
			"etc/systemd/system/containerd.service.d/a.conf": "[Service]\nEnvironment=NO_PROXY=*.net"},
			want: "HTTPS_PROXY=http://a:1 NO_PROXY=.lan >>/etc/default/kubelet", note: "add these hosts to NO_PROXY"},
		"CRI-O": {tree: "crio", files: map[string]string{"etc/conf.d/crio": "export HTTPS_PROXY=http://proxy.example:3128\nexport no_proxy=.lan\n"},
			want: "HTTPS_PROXY=http://proxy.example:3128 NO_PROXY=.lan >>/etc/default/islet"},
		"docker": {tree: "docker", files: map[string]string{"etc/systemd/system/docker.service.d/http-proxy.conf": dropIn}, want: usual + " >>/etc/default/islet"},
		"docker's file": {tree: "docker", files: map[string]string{"etc/docker/daemon.json": `{"data-root": "/srv/docker", "proxies": {"http-proxy": "http://a:1", "https-proxy": "http://b:1",
			"no-proxy": ".lan"}}`}, want: "HTTPS_PROXY=http://b:1 HTTP_PROXY=http://a:1 NO_PROXY=.lan >>/etc/default/islet", note: "proxies"},
		"podman": {tree: "podman", files: map[string]string{"etc/containers/containers.conf": "[engine]\nenv = [\"https_proxy=http://proxy.example:3128\", \"no_proxy=.lan\"]"},
			want: "HTTPS_PROXY=http://proxy.example:3128 NO_PROXY=.lan >>/etc/default/islet"},
		"a login": {tree: "docker", files: map[string]string{"etc/systemd/system/docker.service.d/a.conf": "[Service]\nEnvironment=HTTPS_PROXY=http://board:secret@proxy.example"},
			note: "HTTPS_PROXY"},
		"special characters": {tree: "docker", files: map[string]string{"etc/systemd/system/docker.service.d/a.conf": "[Service]\nEnvironment=HTTPS_PROXY=http://$(reboot)"},
			note: "HTTPS_PROXY"},
		"two": {tree: "docker", files: map[string]string{"etc/systemd/system/docker.service.d/a.conf": dropIn, "etc/docker/daemon.json": `{"data-root": "/srv/docker",
			"proxies": {"https-proxy": "http://b:1", "no-proxy": ".lan,.net"}}`}, want: "HTTPS_PROXY=http://b:1 NO_PROXY=.lan,.net,10.0.0.0/8,.lan >>/etc/default/islet", note: "HTTPS_PROXY"},
		"none": {tree: "docker"},
	} {
		tree := recorded(t, c.tree)
		for file, text := range c.files {
			put(t, tree.root, file, text)
		}
		r := Find(tree, nil)
		checkOutput(t, r)
		var got []string
		for _, s := range r.Steps {
			for _, line := range s.Commands {
				if strings.Contains(line, "_PROXY=") {
					got = append(got, line)
				}
			}
		}
		want := `{ echo; printf '%s\n' ` + strings.Replace(c.want, " >>", "; } >>", 1)
		if c.want == "" && got != nil || c.want != "" && strings.Join(got, "\n") != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		if c.want != "" {
			inOrder(t, r.Back, []string{"sed -i -E '/^(HTTP|HTTPS|NO)_PROXY=/d'"})
		}
		if c.note != "" && !slices.ContainsFunc(r.Differs, func(n Note) bool { return n.Key == c.note || strings.HasPrefix(n.What, c.note) }) {
			t.Errorf("%s: no %q in %+v", name, c.note, r.Differs)
		}
		if text := fmt.Sprint(r); strings.Contains(text, "reboot)") {
			t.Errorf("%s: %s", name, text)
		}
	}
}
