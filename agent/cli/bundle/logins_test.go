package bundle

import (
	"encoding/base64"
	"path/filepath"
	"testing"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/internal/bundle/bundletest"
)

// TestLogins checks which login a repository gets: that of the first file that has one for it.
func TestLogins(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string) { bundletest.Write(t, dir, bundletest.File{Name: name, Data: []byte(text)}) }
	entry := func(user string) string {
		return `{"auth":"` + base64.StdEncoding.EncodeToString([]byte(user+":pw")) + `"}`
	}
	write("run/containers/auth.json", `{"auths":{"a.example/team":`+entry("podman")+`}}`)
	write("home/.docker/config.json", `{"auths":{"a.example":`+entry("docker")+`,"https://index.docker.io/v1/":{"identitytoken":"t"}}}`)
	write("file", `{"auths":{"b.example":`+entry("file")+`}}`)
	write("broken", `{"auths":`)
	vars := map[string]string{"XDG_RUNTIME_DIR": in("run"), "HOME": in("home"), "REGISTRY_AUTH_FILE": in("file")}
	x := &command.Tool{Env: command.Env{Getenv: func(name string) string { return vars[name] }}}
	for repository, want := range map[string]string{
		"a.example/team/kiosk": "podman pw", "a.example/other": "docker pw", "b.example/kiosk": "file pw", "c.example/kiosk": " ",
		"docker.io/library/nginx": " t",
	} {
		user, secret, err := findLogin(x, repository)
		if got := user + " " + secret; err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", repository, got, err, want)
		}
	}
	vars["REGISTRY_AUTH_FILE"] = in("broken")
	if user, secret, err := findLogin(x, "a.example/other"); err == nil {
		t.Errorf("a broken file is ignored: %q %q", user, secret)
	}
}
