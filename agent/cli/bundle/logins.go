package bundle

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/internal/keyring"
	"github.com/islet-edge/islet/internal/registry"
	"github.com/islet-edge/islet/internal/regular"
)

// maxLogins is the maximum size of a file with logins, in bytes.
const maxLogins = 1 << 20

// registryConfig returns the configuration of a client for registries.
func registryConfig(t *command.Tool) registry.Config {
	return registry.Config{Secrets: func(repository string) (user, secret string, err error) { return findLogin(t, repository) }}
}

// findLogin returns the user and the password of a login for a repository, or "" and an identity token. It uses the first file that has
// such a login. podman's files come before docker's.
func findLogin(t *command.Tool, repository string) (user, secret string, err error) {
	for _, name := range loginFiles(t) {
		data, err := regular.Read(name, maxLogins)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var ring keyring.Ring
		if err == nil {
			err = ring.AddFile(data, false, v1.ObjectReference{})
		}
		if found := ring.Lookup(repository); len(found) > 0 {
			if auth := found[0].Auth; auth.IdentityToken == "" {
				return auth.Username, auth.Password, nil
			} else {
				return "", auth.IdentityToken, nil
			}
		}
		if err != nil {
			return "", "", fmt.Errorf("read the logins in %s: %w", name, err)
		}
	}
	return "", "", nil
}

// loginFiles returns the paths of the files in which podman and docker store logins.
func loginFiles(t *command.Tool) (files []string) {
	add := func(dir string, parts ...string) {
		if dir != "" {
			files = append(files, filepath.Join(append([]string{dir}, parts...)...))
		}
	}
	home := t.Getenv("HOME")
	add(t.Getenv("REGISTRY_AUTH_FILE"))
	if run := t.Getenv("XDG_RUNTIME_DIR"); run != "" {
		add(run, "containers", "auth.json")
	} else {
		add(fmt.Sprintf("/run/containers/%d", os.Getuid()), "auth.json")
	}
	add(cmp.Or(t.Getenv("XDG_CONFIG_HOME"), pathIn(home, ".config")), "containers", "auth.json")
	add(cmp.Or(t.Getenv("DOCKER_CONFIG"), pathIn(home, ".docker")), "config.json")
	return files
}

// pathIn returns a path in a directory, or "" if the directory is unknown.
func pathIn(dir, name string) string {
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, name)
}
