package keyring_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/inputweight"
	"github.com/islet-edge/islet/internal/keyring"
)

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
		{"registry.example/te", "registry.example/team/app", true}, // as in the kubelet
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
		var r keyring.Ring
		if err := r.AddFile(fmt.Appendf(nil, `{"auths":{%q:%s}}`, tt.place, auth("ann")), false, v1.ObjectReference{}); err != nil {
			t.Error(err)
		}
		if got := r.Lookup(tt.image); (len(got) == 1) != tt.found {
			t.Errorf("%q for %q: %v", tt.place, tt.image, got)
		}
	}
}

func TestAdd(t *testing.T) {
	var r keyring.Ring
	first, second := v1.ObjectReference{Kind: keyring.Secret, Name: "1"}, v1.ObjectReference{Kind: keyring.Secret, Name: "2"}
	json := `{"auths":{"a.example":` + auth("json") + `,"a.example/team":{"username":"plain","password":"pw"}},"credHelpers":{"x":"y"}}`
	if err := r.AddFile([]byte(json), false, first); err != nil {
		t.Error(err)
	}
	if err := r.AddFile([]byte(`{"a.example/team":`+strings.ReplaceAll(auth("flat"), "=", "")+`}`), true, second); err != nil {
		t.Error(err)
	}
	var users []string
	for _, c := range r.Lookup("a.example/team/app") {
		if c.Auth.Password != "pw" {
			t.Error(c)
		}
		users = append(users, c.Auth.Username+c.From.Name)
	}
	if got := fmt.Sprint(users); got != "[plain1 flat2 json1]" {
		t.Error(got)
	}
	const hush = "s3cret"
	for name, file := range map[string]string{
		"no JSON":    hush,
		"no base64":  `{"auths":{"b.example":{"auth":"` + hush + `!"},"c.example":` + auth("ok") + `}}`,
		"no colon":   `{"auths":{"b.example":{"auth":"` + base64.StdEncoding.EncodeToString([]byte(hush)) + `"}}}`,
		"wrong type": `{"auths":{"b.example":"` + hush + `"}}`,
	} {
		if err := r.AddFile([]byte(file), false, first); err == nil || strings.Contains(err.Error(), hush) {
			t.Error(name, err)
		}
	}
	if got := r.Lookup("c.example/app"); len(got) != 1 {
		t.Error("a valid entry was dropped with an invalid one:", got)
	}
	if got := r.Lookup("b.example/app"); len(got) != 0 {
		t.Error(got)
	}
}

func FuzzRing(f *testing.F) {
	f.Add(`{"auths":{"https://*.example/v1/":`+auth("ann")+`}}`, "a.example/app")
	f.Add(`{"auths":{"[":{"auth":"Og=="}}}`, "")
	f.Fuzz(func(t *testing.T, config, image string) {
		var r keyring.Ring
		_ = r.AddFile([]byte(config), false, v1.ObjectReference{})
		_ = r.AddFile([]byte(config), true, v1.ObjectReference{})
		for _, c := range r.Lookup(image) {
			if c.Auth == nil {
				t.Error("nil")
			}
		}
	})
}

// TestBombs checks that a docker configuration is rejected before it is decoded if its decoded form would be large.
func TestBombs(t *testing.T) {
	var names, fields strings.Builder
	for i := range 200_000 {
		fmt.Fprintf(&names, `"%x":{},`, i)
		fmt.Fprintf(&fields, `"%x":0,`, i)
	}
	for name, text := range map[string]string{
		"many registries": `{"auths":{` + names.String() + `"a":{}}}`,
		"the same one":    `{"auths":{` + strings.Repeat(`"a":{},`, 400_000) + `"a":{}}}`,
	} {
		var before, after runtime.MemStats
		for _, legacy := range []bool{false, true} {
			if legacy {
				text = strings.TrimSuffix(strings.TrimPrefix(text, `{"auths":`), "}")
			}
			var r keyring.Ring
			data := []byte(text)
			runtime.ReadMemStats(&before)
			err := r.AddFile(data, legacy, v1.ObjectReference{})
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, inputweight.ErrTooHeavy) || len(r) > 0 || took > 4<<20 {
				t.Errorf("%s: %.100v, %d entries, %d MiB", name, err, len(r), took>>20)
			}
		}
	}
	var r keyring.Ring
	if err := r.AddFile([]byte(`{"auths":{"a.example":{"auth":"YTpi",`+fields.String()[:100_000]+`"z":0}}}`), false, v1.ObjectReference{}); err == nil && len(r) != 1 {
		t.Errorf("unknown fields: %d entries", len(r))
	}
}
