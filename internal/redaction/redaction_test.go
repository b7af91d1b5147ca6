package redaction_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/islet-edge/islet/internal/redaction"
)

const hidden = "Hunter2-hunter2" // part of each secret below

// TestText checks that secrets are removed from texts in each format in which they may occur, and that the rest of the text stays.
func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"pull https://u:" + hidden + "@registry.example/v2: 401":                             "pull https://REDACTED@registry.example/v2: 401",
		"https://" + hidden + "@registry.example/v2":                                         "https://REDACTED@registry.example/v2",
		"https://x.example/m.yaml?sig=" + hidden + "&a=b: 403":                               "https://x.example/m.yaml?REDACTED 403",
		"Authorization: Bearer " + hidden:                                                    "Authorization: REDACTED",
		"header Basic " + hidden + "=":                                                       "header Basic REDACTED",
		`msg="login" password=` + hidden + ` user=x`:                                         `msg="login" password=REDACTED user=x`,
		`password="` + hidden + ` and more" user=x`:                                          `password=REDACTED user=x`,
		`{"dbPassword": "` + hidden + `", "user": "x"}`:                                      `{"dbPassword": REDACTED, "user": "x"}`,
		`msg="{\"token\":\"` + hidden + `\",\"a\":1}"`:                                       `msg="{\"token\":REDACTED,\"a\":1}"`,
		"run --token " + hidden + " --v 2":                                                   "run --token REDACTED --v 2",
		"DB_PASSWORD='" + hidden + "' sh":                                                    "DB_PASSWORD=REDACTED sh",
		"client-key-data: " + hidden + "\nuser: x":                                           "client-key-data: REDACTED\nuser: x",
		"-----BEGIN EC PRIVATE KEY-----\n" + hidden + "\n-----END EC PRIVATE KEY-----\nrest": "REDACTED\nrest",
		`key="-----BEGIN PRIVATE KEY-----\n` + hidden + `\n-----END PRIVATE KEY-----" x`:     `key="REDACTED" x`,
		"got eyJhbGciOiJub25l.eyJzdWIiOiJ4In0.sig ok":                                        "got REDACTED ok",
		"ghp_abcdefghijklmnopqrstuvwxyz0123456789":                                           "REDACTED",
		"join 10.0.0.1 abcdef.0123456789abcdef now":                                          "join 10.0.0.1 REDACTED now",
		"root:$6$salt$" + hidden + ":1":                                                      "root:REDACTED",
		`pod default/web: Secret default/key: forbidden`:                                     `pod default/web: Secret default/key: forbidden`,
		"host port 80/TCP of container web is taken":                                         "host port 80/TCP of container web is taken",
		"see https://example.com/page and /etc/islet/edge.yaml":                              "see https://example.com/page and /etc/islet/edge.yaml",
	} {
		if got := redaction.New().Text(in); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", in, got, want)
		}
	}
}

// TestValue checks that secrets are removed from JSON values by the names of their fields and by their format.
func TestValue(t *testing.T) {
	in := `{"staticPodURLHeader": {"X-Any": ["` + hidden + `"]}, "password": "` + hidden + `", "tokens": ["` + hidden + `"], "empty": {"token": ""},
		"imageCredentialProviderConfigFile": "/etc/p.yaml", "serverTLSBootstrap": true, "authCount": 3,
		"list": [{"url": "https://u:` + hidden + `@x/"}], "https://u:` + hidden + `@y/": 1}`
	var v any
	if err := json.Unmarshal([]byte(in), &v); err != nil {
		t.Fatal(err)
	}
	r := redaction.New()
	out, err := json.Marshal(r.Value(v))
	if err != nil || strings.Contains(string(out), hidden) {
		t.Errorf("%v: %s", err, out)
	}
	for _, want := range []string{`"/etc/p.yaml"`, `"serverTLSBootstrap":true`, `"authCount":3`, `"token":""`, `"https://REDACTED@x/"`} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %s in %s", want, out)
		}
	}
	if n := r.Counts(); n["field password"] != 1 || n["field staticPodURLHeader"] != 1 || n["password in a URL"] < 2 {
		t.Errorf("%v", n)
	}
	if n := r.Counts(); len(n) != 0 {
		t.Errorf("counted twice: %v", n)
	}
	got := r.Before("Readiness probe failed: "+hidden, "failed: ", "output")
	if got != "Readiness probe failed: REDACTED" || r.Counts()["output"] != 1 {
		t.Error(got)
	}
}

func FuzzText(f *testing.F) {
	f.Add("password: x")
	f.Fuzz(func(t *testing.T, s string) {
		if got := redaction.New().Text(s + "\n--token=" + hidden); strings.Contains(got, hidden) {
			t.Errorf("%q", got)
		}
	})
}
