package ocispec

import (
	"errors"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/keys"
)

// files returns a ReadFile that reads from the map.
func files(m map[string]string) ReadFile {
	return func(name string) ([]byte, error) {
		if s, ok := m[name]; ok {
			return []byte(s), nil
		}
		return nil, fs.ErrNotExist
	}
}

func withSecurity(sec *api.LinuxContainerSecurityContext) *api.ContainerConfig {
	return &api.ContainerConfig{Linux: &api.LinuxContainerConfig{SecurityContext: sec}}
}

func runAs(id int64) *api.LinuxContainerSecurityContext {
	return &api.LinuxContainerSecurityContext{RunAsUser: &api.Int64Value{Value: id}}
}

func TestUser(t *testing.T) {
	image := files(map[string]string{
		"etc/passwd": "root:x:0:0::/:/bin/sh\nnina:x:1000:1001::/:/bin/sh\nbroken\n:::\nbig:x:99999999999:1:\nnone:x::1\nbadgroup:x:5:x\n" +
			"# 2000 is the name of root here\n2000:x:0:0::/:/bin/sh\n4294967296:x:0:0\nneg:x:-1:0\nhuge:x:2147483648:1",
		"etc/group": "root:x:0:\nstaff:x:50:nina,other\nwheel:x:10:root\n3000:x:0:\nempty:x::nina",
	})
	for name, c := range map[string]struct {
		image string
		sec   *api.LinuxContainerSecurityContext
		uid   uint32
		gid   uint32
		more  []uint32
		fails string
	}{
		"nothing":       {uid: 0, gid: 0, more: []uint32{0, 10}},
		"image name":    {image: "nina", uid: 1000, gid: 1001, more: []uint32{1001, 50}},
		"image number":  {image: "7", uid: 7, more: []uint32{0}},
		"number:number": {image: "7:8", uid: 7, gid: 8, more: []uint32{8}},
		"name:group":    {image: "nina:staff", uid: 1000, gid: 50, more: []uint32{50}},
		"override":      {image: "nina", sec: runAs(5), uid: 5, more: []uint32{0}},
		"known number":  {sec: runAs(1000), uid: 1000, gid: 1001, more: []uint32{1001, 50}},
		"no user":       {image: "stranger", fails: "no user"},
		"no group":      {image: "nina:none", fails: "no group"},
		"out of range":  {image: "big", fails: "no IDs"},
		"no number":     {image: "none", fails: "no IDs"},
		"negative":      {image: "neg", fails: "no IDs"},
		"huge":          {image: "huge", fails: "no IDs"},
		"bad group":     {image: "badgroup", fails: "no IDs"},
		"empty group":   {image: "nina:empty", fails: "no ID"},

		"numeric name":                  {image: "2000", uid: 2000, more: []uint32{0}},
		"numeric name, configured":      {sec: runAs(2000), uid: 2000, more: []uint32{0}},
		"numeric name of a group":       {image: "nina:3000", uid: 1000, gid: 3000, more: []uint32{3000, 50}},
		"numeric name out of range":     {image: "4294967296", fails: "an ID is from 0"},
		"out of range, configured":      {sec: runAs(4294967296), fails: "an ID is from 0"},
		"more than 64 bits":             {image: "99999999999999999999", fails: "an ID is from 0"},
		"a negative number":             {image: "-1", fails: "an ID is from 0"},
		"group out of range":            {image: "nina:4294967296", fails: "an ID is from 0"},
		"group without user":            {sec: &api.LinuxContainerSecurityContext{RunAsGroup: &api.Int64Value{Value: 1}}, image: "nina", fails: "runAsGroup is set without a user"},
		"configured group out of range": {sec: &api.LinuxContainerSecurityContext{RunAsUser: &api.Int64Value{}, RunAsGroup: &api.Int64Value{Value: 1 << 32}}, fails: "an ID is from 0"},
		"supplemental out of range":     {sec: &api.LinuxContainerSecurityContext{SupplementalGroups: []int64{1 << 32}}, fails: "an ID is from 0"},
	} {
		u, err := User(image, withSecurity(c.sec), c.image)
		if c.fails != "" {
			if err == nil || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%s: %+v, %v; want an error of %q", name, u, err, c.fails)
			}
			continue
		}
		if err != nil || u.UID != c.uid || u.GID != c.gid || !slices.Equal(u.AdditionalGids, c.more) {
			t.Errorf("%s: %+v, %v", name, u, err)
		}
	}
}

// TestNonRoot checks the annotation keys.RunAsNonRoot. A user with UID 0 is rejected, whatever the user's name is.
func TestNonRoot(t *testing.T) {
	image := files(map[string]string{"etc/passwd": "root:x:0:0\nalso:x:0:0\nnina:x:1000:0\n0000:x:7:7\n"})
	for name, c := range map[string]struct {
		image string
		sec   *api.LinuxContainerSecurityContext
		fails bool
	}{
		"nothing": {"", nil, true}, "root": {"root", nil, true}, "another name": {"also", nil, true}, "zeros": {"0000", nil, true},
		"asked for": {"nina", runAs(0), true}, "by name": {"nina", &api.LinuxContainerSecurityContext{RunAsUsername: "also"}, true},
		"a user": {"nina", nil, false}, "a number": {"5", nil, false}, "root overridden": {"root", runAs(5), false},
	} {
		cfg := withSecurity(c.sec)
		if _, err := User(image, cfg, c.image); err != nil {
			t.Errorf("%s: without the annotation: %v", name, err)
		}
		cfg.Annotations = map[string]string{keys.RunAsNonRoot: "true"}
		if u, err := User(image, cfg, c.image); (err != nil) != c.fails {
			t.Errorf("%s: %+v, %v", name, u, err)
		}
	}
}

// TestUnreadable checks that User returns an error if /etc/passwd or /etc/group cannot be read.
func TestUnreadable(t *testing.T) {
	bad := errors.New("a FIFO")
	for _, f := range []string{"etc/passwd", "etc/group"} {
		read := func(name string) ([]byte, error) {
			if name == f {
				return nil, bad
			}
			return []byte("nina:x:1:1:nina\n"), nil
		}
		if _, err := User(read, withSecurity(nil), "nina"); !errors.Is(err, bad) {
			t.Errorf("%s: %v", f, err)
		}
	}
}

// FuzzUser checks the user for arbitrary account files of an image. A number is used as the UID or GID. A name has UID 0 only if
// /etc/passwd says so.
func FuzzUser(f *testing.F) {
	f.Add("nina:x:1000:1001::/:/bin/sh", "staff:x:50:nina", "nina:staff")
	f.Add("1000:x:0:0::/:/bin/sh", "50:x:0:1000", "1000:50")
	f.Add(":::\n\n\x00", "a", "0:0")
	f.Add("a:x:4294967296:0", "b:x:-1:", "a:b")
	f.Fuzz(func(t *testing.T, users, groups, image string) {
		u, err := User(files(map[string]string{"etc/passwd": users, "etc/group": groups}), withSecurity(nil), image)
		if err != nil {
			return
		}
		if !slices.Contains(u.AdditionalGids, u.GID) {
			t.Errorf("%+v lacks its own group", u)
		}
		name, group, _ := strings.Cut(image, ":")
		if n, err := strconv.ParseInt(name, 10, 64); err == nil && int64(u.UID) != n {
			t.Errorf("user %s became %d", name, u.UID)
		}
		if n, err := strconv.ParseInt(group, 10, 64); err == nil && int64(u.GID) != n {
			t.Errorf("group %s became %d", group, u.GID)
		}
		for _, id := range append(u.AdditionalGids, u.UID) {
			if id > math.MaxInt32 {
				t.Errorf("ID %d", id)
			}
		}
		if name != "" && u.UID == 0 && !mentions(users, name) {
			if n, err := strconv.ParseInt(name, 10, 64); err != nil || n != 0 {
				t.Errorf("%q is root by %q", name, users)
			}
		}
	})
}

// mentions reports whether a line of file has the given name and the ID 0.
func mentions(file, name string) bool {
	for line := range strings.Lines(file) {
		e := strings.Split(strings.TrimSpace(line), ":")
		if len(e) > 2 && e[0] == name && strings.Trim(e[2], "0") == "" && e[2] != "" {
			return true
		}
	}
	return false
}

func TestHome(t *testing.T) {
	for passwd, want := range map[string]string{
		"":                               "/",
		"a:x:1:1:g:/one:/sh\n":           "/",
		"a:x:7:1:g:/seven:/sh\n":         "/seven",
		"a:x:7:1:g:/a:b\na:x:7:1::/b:\n": "/a",
		"a:x:7:1:g::/sh\n":               "/",
		"a:x:7:1:g:relative:/sh\n":       "/",
		"a:x:7:1\n":                      "/",
		"a:x:7:1:g\n":                    "/",
		"a:x:7:1:g:/x=\x00y:/sh\n":       "/",
	} {
		if got := HomeDir(func(string) ([]byte, error) { return []byte(passwd), nil }, 7); got != want {
			t.Errorf("%q: %q, want %q", passwd, got, want)
		}
	}
	if got := HomeDir(func(string) ([]byte, error) { return nil, errors.New("a FIFO") }, 7); got != "/" {
		t.Errorf("got %q", got)
	}
	spec := &specs.Spec{Process: &specs.Process{Env: []string{"A=b"}}}
	if SetHome(spec, "/h"); !slices.Equal(spec.Process.Env, []string{"A=b", "HOME=/h"}) {
		t.Errorf("got %q", spec.Process.Env)
	}
	if SetHome(spec, "/other"); !slices.Equal(spec.Process.Env, []string{"A=b", "HOME=/h"}) {
		t.Errorf("an existing HOME was replaced: %q", spec.Process.Env)
	}
}
