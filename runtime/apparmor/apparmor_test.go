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

// host makes one with these files, whose parser does load.
func host(t *testing.T, enabled, profiles string, load func(string) error) *Host {
	t.Helper()
	root := t.TempDir()
	for path, text := range map[string]string{"sys/module/apparmor/parameters/enabled": enabled, "sys/kernel/security/apparmor/profiles": profiles} {
		if text == "" {
			continue
		}
		path = filepath.Join(root, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return &Host{root: root, load: load, log: slog.New(slog.DiscardHandler)}
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
		asked             *api.SecurityProfile
		privileged        bool
		want, fails       string
	}{
		"off, nothing asked":       {want: ""},
		"off, unconfined":          {asked: unconfined},
		"off, default":             {asked: byDefault, fails: "not enabled"},
		"off, own":                 {asked: own("own"), fails: "not enabled"},
		"disabled":                 {enabled: "N\n", profiles: profiles, asked: byDefault, fails: "not enabled"},
		"no securityfs":            {enabled: "Y\n", asked: byDefault, fails: "securityfs"},
		"on, nothing asked":        {enabled: "Y\n", profiles: profiles, load: works, want: DefaultProfile},
		"on, default":              {enabled: "Y\n", profiles: profiles, load: works, asked: byDefault, want: DefaultProfile},
		"loaded already":           {enabled: "Y\n", profiles: DefaultProfile + " (enforce)\n", load: broken, asked: byDefault, want: DefaultProfile},
		"on, unconfined":           {enabled: "Y\n", profiles: profiles, load: works, asked: unconfined},
		"privileged":               {enabled: "Y\n", profiles: profiles, load: works, privileged: true},
		"privileged, default":      {enabled: "Y\n", profiles: profiles, load: works, privileged: true, asked: byDefault},
		"privileged, own":          {enabled: "Y\n", profiles: profiles, load: works, privileged: true, asked: own("own"), want: "own"},
		"own":                      {enabled: "Y\n", profiles: profiles, load: works, asked: own("own"), want: "own"},
		"as annotations say it":    {enabled: "Y\n", profiles: profiles, load: works, asked: own("localhost/own"), want: "own"},
		"with a space":             {enabled: "Y\n", profiles: profiles, load: works, asked: own("with space"), want: "with space"},
		"with a bracket":           {enabled: "Y\n", profiles: profiles, load: works, asked: own("name (x)"), want: "name (x)"},
		"the beginning of one":     {enabled: "Y\n", profiles: profiles, load: works, asked: own("with"), fails: "not loaded"},
		"not loaded":               {enabled: "Y\n", profiles: profiles, load: works, asked: own("other"), fails: "not loaded"},
		"no name":                  {enabled: "Y\n", profiles: profiles, load: works, asked: own(""), fails: "no name"},
		"no parser, default":       {enabled: "Y\n", profiles: profiles, load: broken, asked: byDefault, fails: "no parser"},
		"no parser, nothing asked": {enabled: "Y\n", profiles: profiles, load: broken},
	} {
		h := host(t, c.enabled, c.profiles, c.load)
		for range 2 { // what was found out once holds
			got, err := h.Profile(&api.LinuxContainerSecurityContext{Apparmor: c.asked, Privileged: c.privileged})
			if got != c.want || (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%s: %q, %v; want %q, %q", name, got, err, c.want, c.fails)
			}
		}
	}
}

// TestParserInstalled: a profile that could not be loaded is loaded for the next who asks for
// it, once that is possible, and from then on for all.
func TestParserInstalled(t *testing.T) {
	tries, there := 0, false
	h := host(t, "Y\n", "x (enforce)\n", func(string) error {
		if tries++; there {
			return nil
		}
		return errors.New("no parser")
	})
	whatever := &api.LinuxContainerSecurityContext{}
	asks := &api.LinuxContainerSecurityContext{Apparmor: &api.SecurityProfile{ProfileType: api.SecurityProfile_RuntimeDefault}}
	for i, step := range []struct {
		sec    *api.LinuxContainerSecurityContext
		there  bool
		want   string
		failed bool
		tries  int
	}{
		{whatever, false, "", false, 1},
		{whatever, false, "", false, 1},
		{asks, false, "", true, 2},
		{whatever, true, "", false, 2},
		{asks, true, DefaultProfile, false, 3},
		{whatever, true, DefaultProfile, false, 3},
	} {
		there = step.there
		got, err := h.Profile(step.sec)
		if got != step.want || (err != nil) != step.failed || tries != step.tries {
			t.Errorf("step %d: %q, %v after %d tries; want %q, failed %v, %d tries", i, got, err, tries, step.want, step.failed, step.tries)
		}
	}
}
