package apparmor

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// host returns a Host that reads files of a temporary directory instead of the kernel's files. When load succeeds, the default profile is
// added to the list of profiles.
func host(t *testing.T, enabled, profiles string, load func(string) error) *Host {
	t.Helper()
	root := t.TempDir()
	h := &Host{root: root, stop: func() {}, log: slog.New(slog.DiscardHandler)}
	h.load = func(name string) error {
		err := load(name)
		if err == nil {
			err = setProfiles(h, profiles+name+" (enforce)\n")
		}
		return err
	}
	t.Cleanup(h.Close)
	if enabled != "" {
		path := filepath.Join(root, "sys/module/apparmor/parameters/enabled")
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(enabled), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if profiles != "" {
		if err := setProfiles(h, profiles); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// setProfiles replaces the list of profiles that the Host reads.
func setProfiles(h *Host, profiles string) error {
	if err := os.MkdirAll(filepath.Dir(h.profilesPath()), 0o755); err != nil {
		return err
	}
	whole := h.profilesPath() + ".new" // renamed, so that a reader never sees a part of the list
	return errors.Join(os.WriteFile(whole, []byte(profiles), 0o600), os.Rename(whole, h.profilesPath()))
}

func TestProfile(t *testing.T) {
	works := func(string) error { return nil }
	broken := func(string) error { return errors.New("no parser") }
	byDefault := &api.SecurityProfile{ProfileType: api.SecurityProfile_RuntimeDefault}
	unconfined := &api.SecurityProfile{ProfileType: api.SecurityProfile_Unconfined}
	own := func(name string) *api.SecurityProfile {
		return &api.SecurityProfile{ProfileType: api.SecurityProfile_Localhost, LocalhostRef: name}
	}
	const profiles = "islet-defaults (enforce)\nown (enforce)\nwith space (complain)\nname (x) (enforce)\n"
	for name, c := range map[string]struct {
		enabled, profiles string
		load              func(string) error
		requested         *api.SecurityProfile
		privileged        bool
		want, fails       string
	}{
		"off, nothing requested":       {want: ""},
		"off, unconfined":              {requested: unconfined},
		"off, default":                 {requested: byDefault, fails: "not enabled"},
		"off, own":                     {requested: own("own"), fails: "not enabled"},
		"disabled":                     {enabled: "N\n", profiles: profiles, requested: byDefault, fails: "not enabled"},
		"no securityfs":                {enabled: "Y\n", requested: byDefault, fails: "securityfs"},
		"on, nothing requested":        {enabled: "Y\n", profiles: profiles, load: works, want: DefaultProfile},
		"on, default":                  {enabled: "Y\n", profiles: profiles, load: works, requested: byDefault, want: DefaultProfile},
		"loaded already":               {enabled: "Y\n", profiles: DefaultProfile + " (enforce)\n", load: broken, requested: byDefault, want: DefaultProfile},
		"loaded in complain mode":      {enabled: "Y\n", profiles: DefaultProfile + " (complain)\n", load: broken, requested: byDefault, fails: "no parser"},
		"complain mode":                {enabled: "Y\n", profiles: DefaultProfile + " (complain)\n", load: works, requested: byDefault, want: DefaultProfile},
		"kills":                        {enabled: "Y\n", profiles: DefaultProfile + " (kill)\n", load: broken, requested: byDefault, want: DefaultProfile},
		"on, unconfined":               {enabled: "Y\n", profiles: profiles, load: works, requested: unconfined},
		"privileged":                   {enabled: "Y\n", profiles: profiles, load: works, privileged: true},
		"privileged, default":          {enabled: "Y\n", profiles: profiles, load: works, privileged: true, requested: byDefault},
		"privileged, own":              {enabled: "Y\n", profiles: profiles, load: works, privileged: true, requested: own("own"), want: "own"},
		"own":                          {enabled: "Y\n", profiles: profiles, load: works, requested: own("own"), want: "own"},
		"with prefix localhost/":       {enabled: "Y\n", profiles: profiles, load: works, requested: own("localhost/own"), want: "own"},
		"with a space":                 {enabled: "Y\n", profiles: profiles, load: works, requested: own("with space"), want: "with space"},
		"with a bracket":               {enabled: "Y\n", profiles: profiles, load: works, requested: own("name (x)"), want: "name (x)"},
		"a prefix of a name":           {enabled: "Y\n", profiles: profiles, load: works, requested: own("with"), fails: "not loaded"},
		"not loaded":                   {enabled: "Y\n", profiles: profiles, load: works, requested: own("other"), fails: "not loaded"},
		"no name":                      {enabled: "Y\n", profiles: profiles, load: works, requested: own(""), fails: "has no name"},
		"no parser, default":           {enabled: "Y\n", profiles: profiles, load: broken, requested: byDefault, fails: "no parser"},
		"no parser, nothing requested": {enabled: "Y\n", profiles: profiles, load: broken},
	} {
		h := host(t, c.enabled, c.profiles, c.load)
		for range 2 { // the second result must be the same
			got, err := h.Profile(&api.LinuxContainerSecurityContext{Apparmor: c.requested, Privileged: c.privileged})
			if got != c.want || (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%s: %q, %v; want %q, %q", name, got, err, c.want, c.fails)
			}
		}
	}
}
