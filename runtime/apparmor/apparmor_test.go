package apparmor

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
		return errNoParser
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

// TestParserFails: a parser that fails is run once for all who ask for its profile, and once a
// minute; who asks for nothing waits for the first try only, not for one that is repeated.
func TestParserFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries, ends := 0, make(chan error)
		defer close(ends) // nobody waits for ever
		h := host(t, "Y\n", "x (enforce)\n", func(string) error { tries++; return <-ends })
		type answer struct {
			profile string
			err     error
		}
		profile := func(asked *api.SecurityProfile) chan answer {
			got := make(chan answer, 1)
			go func() {
				p, err := h.Profile(&api.LinuxContainerSecurityContext{Apparmor: asked})
				got <- answer{p, err}
			}()
			synctest.Wait()
			return got
		}
		byDefault := &api.SecurityProfile{ProfileType: api.SecurityProfile_RuntimeDefault}
		broken := errors.New("broken")
		// answers demands what those say who were made to wait, or are not, after so many tries.
		answers := func(moment, want string, err error, after int, who ...chan answer) {
			t.Helper()
			for i, w := range who {
				select {
				case got := <-w:
					if got.profile != want || !errors.Is(got.err, err) {
						t.Fatalf("%s: %d: %q, %v; want %q, %v", moment, i, got.profile, got.err, want, err)
					}
				default:
					t.Fatalf("%s: %d waits", moment, i)
				}
			}
			if tries != after {
				t.Fatalf("%s: %d tries, not %d", moment, tries, after)
			}
		}

		a, b, c := profile(nil), profile(byDefault), profile(nil)
		if len(a)+len(b)+len(c) > 0 {
			t.Fatal("somebody does not wait for the first try")
		}
		ends <- broken
		synctest.Wait()
		answers("the first try", "", nil, 1, a, c)
		answers("the first try", "", broken, 1, b)

		answers("just failed", "", broken, 1, profile(byDefault))
		time.Sleep(pause - 1)
		answers("almost a minute later", "", broken, 1, profile(byDefault))
		time.Sleep(1)
		answers("a minute later, nothing asked", "", nil, 1, profile(nil))
		a, b = profile(byDefault), profile(byDefault)
		if len(a)+len(b) > 0 {
			t.Fatal("somebody does not wait for the profile that it needs")
		}
		answers("while the parser runs", "", nil, 2, profile(nil))
		ends <- broken
		synctest.Wait()
		answers("the second try", "", broken, 2, a, b, profile(byDefault))

		time.Sleep(pause)
		a = profile(byDefault)
		ends <- nil
		synctest.Wait()
		answers("it works", DefaultProfile, nil, 3, a, profile(nil), profile(byDefault))
	})
}
